-- Counts the rows of a slot, and changes nothing.
--
-- ARGV[4]  from how many of a key's members its bytes are estimated
-- Returns  an array: how many rows there are of each state, the lowest digit first, and how many wait for their keys; for
--          how many ms the first scheduled row is due, and its `wake_at` has passed; of how many running rows the lease has
--          ended, and for how many ms the first of these has (each 0: none); the biggest key, its bytes, and those of all

local samples = ARGV[4]
local counts = { [SCHEDULED] = 0, [RUNNING] = 0, [DONE] = 0, [DEAD] = 0, [CANCELLED] = 0 }
local due, overdue, ended, lease = now, now, 0, now
local biggest, most, total = '', 0, 0

local function weigh(key)
  local found = redis.pcall('MEMORY', 'USAGE', key, 'SAMPLES', samples)
  local bytes = type(found) == 'number' and found or 0
  total = total + bytes
  if bytes > most then
    biggest, most = key, bytes
  end
end

local function first(key)
  return tonumber(redis.call('ZRANGE', key, 0, 0, 'WITHSCORES')[2]) or now
end

for _, lane in ipairs(lanes_of('01234')) do
  local state, by_due, by_wake = tonumber(string.sub(lane, 1, 1)), index('due', lane), index('wake', lane)
  counts[state] = counts[state] + redis.call('ZCARD', by_due)
  if state == SCHEDULED then
    due, overdue = math.min(due, first(by_due)), math.min(overdue, first(by_wake))
  elseif state == RUNNING then
    ended, lease = ended + redis.call('ZCOUNT', by_wake, '-inf', now), math.min(lease, first(by_wake))
  end
  weigh(by_due)
  weigh(by_wake)
end
for _, name in ipairs({ 'rows', 'keys', 'intents' }) do
  weigh(tag .. ':' .. name)
end
return answer({ counts[SCHEDULED], counts[RUNNING], counts[DONE], counts[DEAD], counts[CANCELLED],
  redis.call('ZCARD', tag .. ':intents'), now - due, now - overdue, ended, now - lease, biggest, most, total })
