-- Shows the first wake-ups of a slot that is being emptied.
--
-- KEYS[1]  the ZSET of wake-ups that are held in the slot: score = when due, in ms
-- KEYS[2]  the ZSET of wake-ups of the slot that were taken: score = when the lease ends, in ms
-- ARGV[1]  how many to show at the most, 1 to 500
-- Returns  an array: how many are held, how many are taken, and an array of pairs: the member, in how many ms it is due
--
-- Why a script: what is left of a delay is known only by this server's clock; and leases must end though no receiver
-- looks at the slot any more.

local due, leased = KEYS[1], KEYS[2]
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
for _, member in ipairs(redis.call('ZRANGEBYSCORE', leased, '-inf', now, 'LIMIT', 0, ARGV[1])) do
  redis.call('ZREM', leased, member)
  redis.call('ZADD', due, now, member)
end
local found = redis.call('ZRANGE', due, 0, ARGV[1] - 1, 'WITHSCORES')
local first = {}
for at = 1, #found, 2 do
  -- One that is never due is no wake-up of ours.
  local delay = math.min(math.max(0, tonumber(found[at + 1]) - now), 2 ^ 52)
  first[#first + 1] = { found[at], math.ceil(delay) }
end
return { redis.call('ZCARD', due), redis.call('ZCARD', leased), first }
