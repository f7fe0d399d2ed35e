-- Counts what is in a shard.
--
-- KEYS[1]  the ZSET of wake-ups that are held: score = when due, in ms
-- KEYS[2]  the ZSET of wake-ups that were taken: score = when the lease ends, in ms
-- KEYS[3]  the ZSET of what is no wake-up
-- Returns  an array: how many are held, for how many ms the first of them is due (0: it is not), how many are taken, of how
--          many of these the lease has ended, for how many ms the first of these leases has, how many are no wake-ups, and
--          the bytes of the first two keys as far as the server may be asked
--
-- Why a script: the counts are of one moment, and of this server's clock.

local due, leased = KEYS[1], KEYS[2]
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)

local function since(key)
  local head = tonumber(redis.call('ZRANGE', key, 0, 0, 'WITHSCORES')[2]) or math.huge
  return math.max(0, math.floor(now - math.min(head, now)))
end

local function bytes(key)
  local found = redis.pcall('MEMORY', 'USAGE', key)
  return type(found) == 'number' and found or 0
end

return {
  redis.call('ZCARD', due), since(due),
  redis.call('ZCARD', leased), redis.call('ZCOUNT', leased, '-inf', now), since(leased),
  redis.call('ZCARD', KEYS[3]),
  bytes(due), bytes(leased),
}
