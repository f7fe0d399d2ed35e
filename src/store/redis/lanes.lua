-- Says of which kinds rows need a look, and when the next ones do.
--
-- ARGV[4]  the states whose rows are looked for by their `wake_at`, as digits
-- ARGV[5]  from the how manieth kind of each on
-- ARGV[6]  how many kinds at the most
-- ARGV[7]  how many ms to look ahead for scheduled rows that become due, or -1
-- Returns  an array: an array of lanes, as `STATE:KIND`, whose `wake_at` has passed; in how many ms the next one has (0:
--          some have, -1: there is none); an array of the lanes that have rows which are due by then; in how many ms the
--          next lane has (or -1); whether there are more (1 or 0), of which the next one may be

local states, skipped, count, within = ARGV[4], tonumber(ARGV[5]), tonumber(ARGV[6]), tonumber(ARGV[7])
local has_more = 0

-- The lanes of a state whose first row needs a look, by an index of these; and when the next one does, unless there are
-- more. By one command, as this is all that an idle worker asks.
local function lanes_of(key, state, last, lanes)
  local kinds = redis.call('ZRANGEBYSCORE', key, '-inf', '+inf', 'WITHSCORES', 'LIMIT', skipped, count + 1)
  for at = 1, #kinds, 2 do
    local first = tonumber(kinds[at + 1])
    if first > last then
      return first
    elseif at > 2 * count then
      has_more = 1
    else
      lanes[#lanes + 1] = state .. ':' .. kinds[at]
    end
  end
  return math.huge
end

local overdue, next_wake = {}, math.huge
for state in string.gmatch(states, '.') do
  next_wake = min(next_wake, lanes_of(tag .. ':first:wake:' .. state, state, now, overdue))
end
if #overdue > 0 then
  next_wake = now
end
local ahead, next_due = {}, math.huge
if within >= 0 then
  next_due = lanes_of(tag .. ':first:due:0', '0', after(within), ahead)
end
return answer({ overdue, millis_until(next_wake), ahead, millis_until(next_due), has_more })
