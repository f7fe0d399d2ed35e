-- Holds wake-ups until their delays are over by this server's clock.
--
-- KEYS[1]  the ZSET of wake-ups that are held in a shard: member = the wake-up, score = when it is due, in ms
-- KEYS[2]  the HASH of that shard's kinds: number to name
-- ARGV[1]  the channel on which sleeping receivers listen
-- ARGV[2]  the number of the shard
-- ARGV[3]  how many kinds follow
-- ARGV[4]  the delay of all wake-ups in ms, or nothing if each has its own
-- ARGV[5]… for each kind its number and its name; then of each wake-up: its delay in ms, unless all have one, and its
--          member; at least one, at most 500 (`unpack` stops at about 8,000 values)
--
-- Why a script: the delay must be added to the server's clock, in the same step, so that no client's clock matters;
-- and only here is it known whether a sleeping receiver has to be told of an earlier head. It is told the delay and
-- not a time, so that it need not know this clock either.

local due, kinds = KEYS[1], KEYS[2]
local count, delay_of_all = tonumber(ARGV[3]), ARGV[4]
local numbers = {}
for at = 1, count do
  numbers[at] = ARGV[3 + 2 * at]
end
local names = redis.call('HMGET', kinds, unpack(numbers))
for at = 1, count do
  if not names[at] then
    redis.call('HSET', kinds, numbers[at], ARGV[4 + 2 * at])
  end
end

local time = redis.call('TIME')
local now = time[1] * 1000 + math.ceil(time[2] / 1000)
local earliest = math.huge
-- Formatting a number takes longer than all the rest, and many delays are alike.
local scores = {}
local function score_after(delay)
  local score = scores[delay]
  if not score then
    local due_at = now + delay
    earliest = math.min(earliest, due_at)
    score = string.format('%.0f', due_at)
    scores[delay] = score
  end
  return score
end

local scored, length, first = {}, 0, 5 + 2 * count
if delay_of_all ~= '' then
  local score = score_after(delay_of_all)
  for at = first, #ARGV do
    scored[length + 1], scored[length + 2] = score, ARGV[at]
    length = length + 2
  end
else
  for at = first, #ARGV, 2 do
    scored[length + 1], scored[length + 2] = score_after(ARGV[at]), ARGV[at + 1]
    length = length + 2
  end
end

local head = redis.call('ZRANGE', due, 0, 0, 'WITHSCORES')[2]
redis.call('ZADD', due, unpack(scored))

if not head or earliest < tonumber(head) then
  -- An account that may not publish can still send: receivers then find the wake-up by their next poll.
  redis.pcall('PUBLISH', ARGV[1], 'due ' .. ARGV[2] .. ' ' .. earliest - now)
end
