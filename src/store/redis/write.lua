-- Writes or removes rows that begin as they were read.
--
-- ARGV[1]… channel, who tells, and what needs a look within how many ms is told
-- ARGV[4]  the call by which this is known if it comes a second time, or nothing
-- ARGV[5]  whether it must pass where the server is full (1 or 0)
-- ARGV[6]… the first `wake_at` and due time that needs a look, or nothing
-- ARGV[8]… of each row: id; what its head has to begin with; its head before what belongs to the payload, or nothing to remove
--          it; that part, or nothing where the payload stays; the rest of its head; the lane that it is in, and the one that it
--          comes into; when it is due, or nothing where that stays; its `wake_at`, or nothing; what becomes of its key: nothing,
--          `free`, `take` or `gone`; the name of that key, and its entry in `named`; payload and headers; what is noted of it,
--          and of its wake-up
-- Returns  of each a digit: 1 if it was written; nothing if the call has come before, with whatever effect

local STEP = 15
if ARGV[5] == '1' then
  pass_though_full()
end
-- A client of a Cluster sends a call again whose answer was lost.
if ARGV[4] ~= '' and not redis.call('SET', tag .. ':call:' .. ARGV[4], '', 'PX', 30000, 'NX') then
  return { now, '' }
end
local ids, names = {}, {}
for at = 8, #ARGV, STEP do
  ids[#ids + 1] = ARGV[at]
  if ARGV[at + 10] ~= '' then
    names[#names + 1] = ARGV[at + 10]
  end
end
local owners = {}
for at, id in ipairs(call_for('HMGET', live, names)) do
  owners[names[at]] = id
end

local done, heads, given, noted, gone, empty = {}, {}, {}, {}, {}, {}
local owned, free, ended, again = {}, {}, {}, {}
for place, old in ipairs(call_for('HMGET', rows, ids)) do
  local at = 8 + STEP * (place - 1)
  local id, guard, start, middle, rest, from, to, due, wake, step, name, entry, payload, lines, sent =
    unpack(ARGV, at, at + STEP - 1)
  local is_second = step == 'take' and owners[name] and owners[name] ~= id and alive(owners[name])
  if not old or sub(old, 1, #guard) ~= guard or is_second then
    done[place] = '0'
  else
    done[place] = '1'
    if start == '' then
      gone[#gone + 1] = id
    else
      if payload ~= '' then
        put(given, payload, id)
      elseif middle ~= '' then
        empty[#empty + 1] = id
      end
      -- What belongs to the payload stays with it.
      put(heads, start .. (middle ~= '' and middle or sub(old, 27, 39)) .. rest, id)
      if lines ~= '' or sent ~= '' then
        noted[#noted + 1] = { id, lines, sent }
      end
    end
    local left, entered = lane(from), to ~= '' and lane(to)
    if left ~= entered then
      left.out[#left.out + 1] = id
    elseif wake == '' then
      left.asleep[#left.asleep + 1] = id
    end
    if due ~= '' then
      put(entered.due, id, due)
    end
    if wake ~= '' then
      put(entered.wake, id, wake)
    end
    if step == 'take' then
      owners[name], owned[name], free[name] = id, id, nil
      again[#again + 1] = entry
    elseif step == 'free' and owners[name] == id then
      owners[name], owned[name], free[name] = false, nil, true
    end
    if step == 'free' then
      ended[#ended + 1] = '0'
      ended[#ended + 1] = entry
    elseif step == 'gone' then
      again[#again + 1] = entry
    end
  end
end

local function keys_of(all, with_values)
  local list = {}
  for name, value in pairs(all) do
    list[#list + 1] = name
    if with_values then
      list[#list + 1] = value
    end
  end
  return list
end

call_for('HSET', rows, heads)
call_for('HSET', payloads, given)
call_for('HDEL', payloads, empty)
keep_notes(noted)
call_for('HSET', live, keys_of(owned, true))
call_for('HDEL', live, keys_of(free, false))
call_for('ZADD', named, ended)
call_for('ZREM', named, again)
for _, hash in ipairs({ rows, payloads, notes }) do
  call_for('HDEL', hash, gone)
end
keep_lanes()
tell(ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[6]) or math.huge, tonumber(ARGV[7]) or math.huge)
return { now, table.concat(done) }
