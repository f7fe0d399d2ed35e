-- For the scripts that come after it: how many shards there are, by what is kept in `key`; where nothing is kept (this is
-- the first use of the prefix, or the server has lost it) as many as the caller says, which is kept from then on.
local function shards_of(key, first)
  local kept = redis.call('HMGET', key, 'shards')[1]
  if not kept then
    redis.call('HSET', key, 'shards', first)
    kept = first
  end
  return tonumber(kept) or 0
end
