-- Writes or removes rows that begin as they were read.
--
-- ARGV[1]… channel, shard and sender, and what wakes within how many ms is published
-- ARGV[4]  the call by which this is known if it comes a second time, or nothing
-- ARGV[5]  whether it must pass where the server is full (1 or 0)
-- ARGV[6]  when the first of the rows is due or wakes, or nothing
-- ARGV[7]… of each row: id; what its head has to begin with; its head, or nothing to remove it; `=` and payload with headers, or
--          nothing where these stay, and with them the limit of attempts; `STATE:KIND` before and after; when it is due, or
--          nothing where that stays; its `wake_at`, or nothing; the name of its key and its entry in `named`, or nothing where
--          neither changes; what is noted of it
-- Returns  of each a digit: 1 if it was written

local STEP = 11
-- A client of a Cluster sends a call again whose answer was lost.
local call = ARGV[4] ~= '' and tag .. ':call:' .. ARGV[4]
local said = call and redis.call('GET', call)
if said then
  return { now, said }
end
if ARGV[5] == '1' then
  pass_though_full()
end
local ids, names = {}, {}
for at = 7, #ARGV, STEP do
  ids[#ids + 1] = ARGV[at]
  if ARGV[at + 8] ~= '' then
    names[#names + 1] = ARGV[at + 8]
  end
end
local owners = {}
for at, id in ipairs(call_for('HMGET', live, names)) do
  owners[names[at]] = id
end

local done, heads, given, noted, gone, empty = {}, {}, {}, {}, {}, {}
local owned, free, ended, again = {}, {}, {}, {}
for place, old in ipairs(call_for('HMGET', rows, ids)) do
  local at = 7 + STEP * (place - 1)
  local id, guard, head, payload, from, to, due, wake, name, entry, lines = unpack(ARGV, at, at + STEP - 1)
  local is_live = tonumber(sub(to, 1, 1)) == 0 or tonumber(sub(to, 1, 1)) == 1
  local owner = owners[name]
  local is_second = is_live and owner and owner ~= id and alive(owner)
  -- One that cannot be decoded has no guard: it is removed only if it is of the state that an index has it in.
  local is_other = old and guard == '' and #old >= 18 and string.byte(old, 18) ~= tonumber(sub(from, 1, 1))
  if not old or sub(old, 1, #guard) ~= guard or is_second or is_other then
    done[place] = '0'
  else
    done[place] = '1'
    if head == '' then
      gone[#gone + 1] = id
    else
      if payload == '' then
        head = sub(head, 1, 63) .. sub(old, 64, 75) .. sub(head, 76)
      elseif payload == '=' then
        empty[#empty + 1] = id
      else
        put(given, sub(payload, 2), id)
      end
      put(heads, head, id)
      if lines ~= '' then
        noted[#noted + 1] = { id, lines }
      end
    end
    local left, entered = index_of(from), to ~= '' and index_of(to)
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
    if name ~= '' and is_live then
      owners[name] = id
      put(owned, id, name)
      again[#again + 1] = entry
    elseif name ~= '' and head ~= '' then
      if owner == id then
        owners[name] = false
        free[#free + 1] = name
      end
      put(ended, entry, '0')
    elseif name ~= '' then
      again[#again + 1] = entry
    end
  end
end

call_for('HSET', rows, heads)
call_for('HSET', payloads, given)
call_for('HDEL', payloads, empty)
keep_notes(noted)
-- What frees a key comes before what takes it.
call_for('HDEL', live, free)
call_for('HSET', live, owned)
call_for('ZADD', named, ended)
call_for('ZREM', named, again)
for _, hash in ipairs({ rows, payloads, notes }) do
  call_for('HDEL', hash, gone)
end
keep_indexes()
publish(ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[6]) or math.huge)
done = table.concat(done)
if call then
  redis.call('SET', call, done, 'PX', 30000)
end
return { now, done }
