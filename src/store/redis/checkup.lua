-- Counts the rows of some kinds of one state, and changes nothing; or weighs what is not of one state.
--
-- ARGV[1]  from how many of a key's members its bytes are estimated
-- ARGV[2]  the state, as a digit; or nothing
-- ARGV[3]… kinds
-- Returns  an array: how many rows there are; for how many ms the first is due, and its `wake_at` has passed (each 0: it
--          is not); of how many the `wake_at` has passed; the biggest key, its bytes, and those of all

local samples, state = ARGV[1], ARGV[2]
local count, due, wake, overdue = 0, now, now, 0
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

for at = 3, #ARGV do
  local lane = state .. ':' .. ARGV[at]
  local by_due, by_wake = tag .. ':due:' .. lane, tag .. ':wake:' .. lane
  count = count + redis.call('ZCARD', by_due)
  due, wake = min(due, first(by_due)), min(wake, first(by_wake))
  overdue = overdue + redis.call('ZCOUNT', by_wake, '-inf', now)
  weigh(by_due)
  weigh(by_wake)
end
if state == '' then
  for _, name in ipairs({ 'rows', 'payloads', 'notes', 'live', 'named' }) do
    weigh(tag .. ':' .. name)
  end
end
return { now, { count, now - due, now - wake, overdue, biggest, most, total } }
