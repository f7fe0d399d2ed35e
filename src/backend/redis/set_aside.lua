-- Moves members that are no wake-ups out of the way.
--
-- KEYS[1]  a ZSET of wake-ups of a shard
-- KEYS[2]  the ZSET of members that are no wake-ups: score = when found, in ms
-- ARGV[1]  how many of these are kept; the oldest go
-- ARGV[2]… the members, at most 500
-- Returns  how many were moved
--
-- Why a script: foreign data must not be lost between two commands.

local now = redis.call('TIME')[1] * 1000
local moved = 0
for at = 2, #ARGV do
  if redis.call('ZREM', KEYS[1], ARGV[at]) == 1 then
    redis.call('ZADD', KEYS[2], now, ARGV[at])
    moved = moved + 1
  end
end
redis.call('ZREMRANGEBYRANK', KEYS[2], 0, -1 - ARGV[1])
return moved
