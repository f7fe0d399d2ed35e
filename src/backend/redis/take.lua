-- Takes wake-ups that are due by this server's clock, and leases them to the caller.
--
-- KEYS[1]  the ZSET of wake-ups that are held in a shard: score = when due, in ms
-- KEYS[2]  the ZSET of wake-ups of that shard that were taken and are not yet acknowledged: score = when the lease ends
-- ARGV[1]  how many to take at the most, 1 to 500 (`unpack` stops at about 8,000 values)
-- ARGV[2]  the length of the lease in ms
-- ARGV[3]  the channel that announces that there is more than was taken; '' if there are no other receivers
-- ARGV[4]  the number of the shard
-- Returns  an array: how many µs until polling again can find something (a day if there is nothing to wait for), when the lease
--          of what was taken ends, then the members taken
--
-- Why a script: each wake-up must go to exactly one receiver, so finding and moving it is one step; and the receiver
-- must learn when the next one is due without a second call. The end of the lease is also the token by which the claim
-- is known: a later claim of the same member ends later.

local due, leased = KEYS[1], KEYS[2]
local max, lease = tonumber(ARGV[1]), tonumber(ARGV[2])
local time = redis.call('TIME')
-- With its fraction, so that the wait that is returned is not rounded down to a time at which nothing is due yet.
local now = time[1] * 1000 + time[2] / 1000

local function head(key)
  return tonumber(redis.call('ZRANGE', key, 0, 0, 'WITHSCORES')[2]) or math.huge
end

-- Moves up to `max` members whose time has passed from one ZSET into another, all with one new score.
local function move(from, to, score)
  local members = redis.call('ZRANGEBYSCORE', from, '-inf', now, 'LIMIT', 0, max)
  local scored = {}
  for at, member in ipairs(members) do
    scored[2 * at - 1] = score
    scored[2 * at] = member
  end
  -- Removed first: once a script has written, a server that is full (maxmemory) no longer refuses its ZADD.
  redis.call('ZREMRANGEBYRANK', from, 0, #members - 1)
  redis.call('ZADD', to, unpack(scored))
  return members
end

-- Both heads are read before anything is written: a key of another type fails here, where nothing is half done.
local next_end, next_due = head(leased), head(due)

-- These were not acknowledged in time: they are due again, behind those that waited longer.
if next_end <= now then
  move(leased, due, math.floor(now))
  next_end, next_due = head(leased), head(due)
end

local taken, lease_end = {}, math.ceil(now + lease)
if next_due <= now then
  taken = move(due, leased, lease_end)
  next_due, next_end = head(due), math.min(next_end, lease_end)
  if next_due <= now and ARGV[3] ~= '' then
    redis.pcall('PUBLISH', ARGV[3], 'more ' .. ARGV[4])
  end
end

local wait = math.ceil((math.min(next_due, next_end) - now) * 1000)
return { math.max(0, math.min(wait, 86400000000)), lease_end, unpack(taken) }
