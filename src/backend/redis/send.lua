-- Holds wake-ups until their delays are over by this server's clock.
--
-- KEYS[1]  the ZSET of wake-ups that are held: member = the encoded wake-up, score = when it is due, in ms
-- ARGV[1]  the channel on which sleeping receivers listen
-- ARGV[2]… pairs: the delay in ms, the member; at least one pair, at most 500 (`unpack` stops at about 8,000 values)
-- Returns  nothing
--
-- Why a script: the delay must be added to the server's clock, in the same step, so that no client's clock matters;
-- and only here is it known whether a sleeping receiver has to be told of an earlier head. It is told the delay and
-- not a time, so that it need not know this clock either.

local due, channel = KEYS[1], ARGV[1]
local time = redis.call('TIME')
local now = time[1] * 1000 + math.ceil(time[2] / 1000)

local pairs_to_add, earliest = {}, math.huge
for at = 2, #ARGV, 2 do
  local score = now + ARGV[at]
  if score < earliest then
    earliest = score
  end
  pairs_to_add[at - 1] = score
  pairs_to_add[at] = ARGV[at + 1]
end

local head = redis.call('ZRANGE', due, 0, 0, 'WITHSCORES')[2]
redis.call('ZADD', due, unpack(pairs_to_add))

if not head or earliest < tonumber(head) then
  -- A user who may not publish can still send: receivers then find the wake-up when they look again by themselves.
  redis.pcall('PUBLISH', channel, earliest - now)
end
