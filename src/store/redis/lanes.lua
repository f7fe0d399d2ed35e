-- For the scripts that come after it and write: what is kept of a lane, the rows of one state and kind.

-- The lanes whose rows have changed, by `STATE:KIND`: what goes into their indexes, as score and id, and what goes out of both.
local lanes = {}

local function lane(name)
  local found = lanes[name]
  if not found then
    found = { due = {}, wake = {}, out = {}, asleep = {} }
    lanes[name] = found
  end
  return found
end

local function put(list, id, score)
  local count = #list
  list[count + 1], list[count + 2] = score, id
end

-- Adds what was noted of rows to what they have, each `{ id, lines, sent }`: what is oldest is cut off.
local function keep_notes(all)
  local ids, kept = {}, {}
  for at, note in ipairs(all) do
    ids[at] = note[1]
  end
  for at, old in ipairs(call_for('HMGET', notes, ids)) do
    old = old or '\n'
    local note, first = all[at], string.find(old, '\n', 1, true) or #old + 1
    local sent = note[3] ~= '' and note[3] or sub(old, 1, first - 1)
    kept[2 * at - 1], kept[2 * at] = note[1], sent .. '\n' .. sub(sub(old, first + 1) .. note[2], -HISTORY)
  end
  call_for('HSET', notes, kept)
end

-- Writes the indexes, and of each lane whether it has rows, and when the first of them needs a look.
local function keep_lanes()
  for name, lane in pairs(lanes) do
    call_for('ZADD', tag .. ':due:' .. name, lane.due)
    call_for('ZADD', tag .. ':wake:' .. name, lane.wake)
  end
  local added, removed = lists(), lists()
  for name, lane in pairs(lanes) do
    local due, wake = tag .. ':due:' .. name, tag .. ':wake:' .. name
    call_for('ZREM', due, lane.out)
    call_for('ZREM', wake, lane.out)
    call_for('ZREM', wake, lane.asleep)
    local state, kind = sub(name, 1, 1), sub(name, 3)
    local function say(what, score)
      local list = (score and added or removed)[tag .. ':' .. what .. ':' .. state]
      if score then
        list[#list + 1] = score
      end
      list[#list + 1] = kind
    end
    local first = redis.call('ZRANGE', due, 0, 0, 'WITHSCORES')[2]
    say('kinds', first and '0')
    say('first:due', first)
    say('first:wake', redis.call('ZRANGE', wake, 0, 0, 'WITHSCORES')[2])
  end
  call_each('ZADD', added)
  call_each('ZREM', removed)
end

-- Tells others of what needs a look soon. A user who may not publish can still write: others then find the row when they look
-- again by themselves.
local function tell(channel, from, horizon, wake, due)
  if channel ~= '' and min(wake, due) <= now + tonumber(horizon) then
    redis.pcall('PUBLISH', channel, string.format('%s %.0f %.0f %.0f', from, now, min(wake, LAST), min(due, LAST)))
  end
end

-- A server that is full (maxmemory) refuses the first command of a script that may take memory, but none once the script has
-- written. What ends, moves or keeps what is there must pass: so this comes first, which takes none and changes nothing.
local function pass_though_full()
  redis.call('HDEL', rows, '')
end
