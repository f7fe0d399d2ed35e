-- Says which rows have a `wake_at` that has passed, the longest ago first, and when the next one has; and looks ahead.
-- Ends the tries of callers that have gone away before their rows had their keys.
--
-- ARGV[4]  the states to look at, as digits
-- ARGV[5]  how many rows of each lane at the most
-- ARGV[6]  how many ms to look ahead, or -1
-- ARGV[7]  from how many ms ago
-- ARGV[8]  up to how many rows of each kind
-- ARGV[9]… of each lane to look at: lane, how many of its members to leave out; where there are none: all lanes
-- Returns  an array: in how many ms the next `wake_at` has passed (0: some have, -1: there is none); an array of each
--          lane where some have: lane, how many members it had to give, then of each row: id and first bytes; in how
--          many ms the next row is due that is not ahead yet (or -1); ids and first bytes of the rows ahead; where to go
--          on with these (`upcoming.lua`)

-- After how long a try counts as left behind, in ms.
local LEFT_BEHIND = 60000
-- How many rows one call gives: a bound on how long it keeps the server from others.
local BUDGET = 200

local states, limit, within = ARGV[4], tonumber(ARGV[5]), tonumber(ARGV[6])
local lanes, offsets = {}, {}
for at = 9, #ARGV, 2 do
  lanes[#lanes + 1] = ARGV[at]
  offsets[ARGV[at]] = tonumber(ARGV[at + 1])
end
if #lanes == 0 then
  lanes = lanes_of(states)
end
limit = math.min(limit, math.max(10, math.floor(BUDGET / math.max(1, #lanes))))

local next_wake, found = math.huge, {}
for _, lane in ipairs(lanes) do
  local key, offset = index('wake', lane), offsets[lane] or 0
  local head = redis.call('ZRANGE', key, offset, offset, 'WITHSCORES')
  if not head[1] then
    -- It may be that the lane is none.
    touched[lane] = true
  elseif tonumber(head[2]) > now then
    next_wake = math.min(next_wake, tonumber(head[2]))
  else
    next_wake = now
    local overdue = redis.call('ZRANGEBYSCORE', key, '-inf', now, 'WITHSCORES', 'LIMIT', offset, limit)
    local ids = {}
    for at = 1, #overdue, 2 do
      ids[#ids + 1] = overdue[at]
    end
    preload(ids)
    local given = { lane, #overdue / 2 }
    for at = 1, #overdue, 2 do
      local row = member('wake', lane, overdue[at], overdue[at + 1])
      if row then
        given[#given + 1] = overdue[at]
        given[#given + 1] = brief(row)
      end
    end
    found[#found + 1] = given
  end
end

if string.find(states, '0', 1, true) then
  for _, id in ipairs(redis.call('ZRANGEBYSCORE', intents, '-inf', now - LEFT_BEHIND, 'LIMIT', 0, BUDGET)) do
    local row = read(id)
    if row and is_waiting(row) then
      abandon(id, row)
    else
      redis.call('ZREM', intents, id)
    end
  end
end

local ahead, next_due, on = {}, math.huge, {}
if within >= 0 then
  ahead, next_due, on = look_ahead(tonumber(ARGV[7]), within, tonumber(ARGV[8]), nil)
end
return answer({ millis_until(next_wake), found, millis_until(next_due), ahead, on })
