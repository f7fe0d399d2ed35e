-- For the scripts that come after it and write: what is kept of a lane, the rows of one state and kind.

-- What goes into indexes with which scores, what out of them, and the lanes whose rows have changed, as `STATE:KIND`.
local into, out, touched = lists(), lists(), {}

local function put(index, lane, id, score)
  local members = into[tag .. ':' .. index .. ':' .. lane]
  local count = #members
  members[count + 1], members[count + 2] = score, id
end

local function take(index, lane, id)
  local members = out[tag .. ':' .. index .. ':' .. lane]
  members[#members + 1] = id
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
  call_each('ZADD', into)
  call_each('ZREM', out)
  local added, removed = lists(), lists()
  for lane in pairs(touched) do
    local state, kind = sub(lane, 1, 1), sub(lane, 3)
    local firsts = {}
    for _, index in ipairs({ 'due', 'wake' }) do
      firsts['first:' .. index] = redis.call('ZRANGE', tag .. ':' .. index .. ':' .. lane, 0, 0, 'WITHSCORES')[2] or false
    end
    firsts.kinds = firsts['first:due'] and '0'
    for name, score in pairs(firsts) do
      local list = (score and added or removed)[tag .. ':' .. name .. ':' .. state]
      if score then
        list[#list + 1] = score
      end
      list[#list + 1] = kind
    end
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
