-- Counts the processes that receive.
--
-- KEYS[1]  the ZSET of the receiving processes: score = when they count as gone, in ms
-- Returns  how many do not count as gone
--
-- Why a script: it is this server's clock that counts.

local time = redis.call('TIME')
return redis.call('ZCOUNT', KEYS[1], '(' .. (time[1] * 1000 + math.floor(time[2] / 1000)), '+inf')
