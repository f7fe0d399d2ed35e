-- For the scripts that come after it: what ends, keeps or moves what is there must also pass where memory is full
-- (maxmemory). A server refuses the first command of a script then that may take memory, but none once the script has
-- written; and this one takes none and changes nothing. So it is from Redis 6 on, and on Valkey.
redis.call('HDEL', rows, '')

