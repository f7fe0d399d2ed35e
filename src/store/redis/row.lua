-- For the scripts that come after it: the rows of one slot, and the indexes over them, kept in step.
--
-- KEYS[1]  the hash tag of the slot; every key of it begins so, and is made here
-- ARGV[1]  the channel on which others hear of what is due soon, or nothing
-- ARGV[2]  who tells, and of which slot
-- ARGV[3]  what needs a look within so many ms is told; or `closed`, of a call that a slot takes which is closed
-- ARGV[4]… what the script itself takes
-- Returns  an array: the time by this server's clock, in how many ms what was written here needs a look because of its
--          `wake_at`, because it is due, because its history is over (each -1: never), and what the script itself gives
--
--   TAG:rows             HASH of rows: id of 16 bytes, and the row, a head of fixed size and then texts
--   TAG:due:STATE:KIND   ZSET of the ids of rows of that state and kind, by when they are due
--   TAG:wake:STATE:KIND  ZSET of the same rows by `wake_at`, those left out that have none
--   TAG:lanes            SET of `STATE:KIND` of which there are rows
--   TAG:keys             HASH of keys: kind, NUL and key, and the ids of its rows (`entry.lua`)
--   TAG:intents          ZSET of rows that wait for their key, by since when (`intend.lua`)
--   TAG:closed           there once the next epoch has begun: see `moving.rs` for this and the next two
--   TAG:sealed           there once all that was in the epoch before has been carried over
--   TAG:gone             SET of what was removed before that

local tag, channel, from, horizon = KEYS[1], ARGV[1], ARGV[2], tonumber(ARGV[3])
if horizon and redis.call('EXISTS', tag .. ':closed') == 1 then
  return redis.error_reply('CLOSED this slot is of an epoch that is over')
end
local rows = tag .. ':rows'
local time = redis.call('TIME')
-- Cut off, not rounded: what is due must not be so early.
local now = time[1] * 1000 + math.floor(time[2] / 1000)

local SCHEDULED, RUNNING, DONE, DEAD, CANCELLED, INTENT = 0, 1, 2, 3, 4, 5
-- state, flags, version, due_at, planned_at, wake_at (0: none), attempt, max_attempts, hop, created_at, updated_at,
-- finished_at (0: none), and the lengths of kind, key (0: none), owner and last error, which follow in this order; the
-- rest of a row, payload and headers, is not looked into. Times are whole ms, which a double has room for.
local HEAD, SIZE = '<BBI6i8i8I6I4I4I4I6I6I6BBI2I4', 68
local HAS_MAX, HAS_OWNER, HAS_ERROR = 1, 2, 4
local LAST = 253402300799999

-- Rows that were looked into, false where there is none; values that cannot be read as rows; and the ids of rows that have
-- changed. They are written at the end, with what has changed in indexes: a command takes many rows in hardly more time
-- than one.
local known, unreadable, changed = {}, {}, {}
-- What somebody else has put where it does not belong: index, lane, id, and its score there or false.
local strays = {}
-- What else is to be written then.
local finally = {}
-- Lanes that a row came into or left.
local touched = {}
-- When the first of what was written needs a look.
local soon_wake, soon_due, soon_purge = math.huge, math.huge, math.huge

local min = math.min

local function after(millis)
  return min(now + millis, LAST)
end

-- Names of lanes by state and kind, and keys of indexes by name and lane: each is made once.
local lane_names, index_keys = {}, { due = {}, wake = {} }

local function lane_of(state, kind)
  local names = lane_names[state]
  if not names then
    names = {}
    lane_names[state] = names
  end
  local name = names[kind]
  if not name then
    name = state .. ':' .. kind
    names[kind] = name
  end
  return name
end

local function index(name, lane)
  local keys = index_keys[name]
  local key = keys[lane]
  if not key then
    key = tag .. ':' .. name .. ':' .. lane
    keys[lane] = key
  end
  return key
end

-- A row as a table; none if it cannot be read. What begins with `was` says what indexes it is in. Its rest is taken out of
-- the value when the row is written anew. All fields are named at once: a table that grows is made again and again.
local function unpacked(value)
  if #value < SIZE then
    return nil
  end
  local state, flags, version, due, planned, wake, attempt, max, hop, created, updated, finished, kind, key, owner, fault,
    at = struct.unpack(HEAD, value)
  local key_at = at + kind
  local owner_at = key_at + key
  local fault_at = owner_at + owner
  if state > INTENT or #value < fault_at + fault - 1 then
    return nil
  end
  local name = string.sub(value, at, key_at - 1)
  local lane = lane_of(state, name)
  return {
    value = value, brief = owner_at - 1, rest_at = fault_at + fault, rest = nil, state = state, version = version, due = due,
    planned = planned, wake = wake, attempt = attempt, max = flags % 2 >= HAS_MAX and max or nil, hop = hop,
    created = created, updated = updated, finished = finished, kind = name,
    key = key > 0 and string.sub(value, key_at, owner_at - 1) or '',
    owner = flags % 4 >= HAS_OWNER and string.sub(value, owner_at, fault_at - 1) or nil,
    fault = flags % 8 >= HAS_ERROR and string.sub(value, fault_at, fault_at + fault - 1) or nil,
    lane = lane, was_state = state, was_lane = state ~= INTENT and lane or nil, was_due = due, was_wake = wake,
    is_changed = false, is_gone = false,
  }
end

-- A row as it is kept, and where its rest begins.
local function packed(row)
  local kind, key, owner, fault = row.kind, row.key, row.owner, row.fault
  local flags = (row.max and HAS_MAX or 0) + (owner and HAS_OWNER or 0) + (fault and HAS_ERROR or 0)
  local head = struct.pack(HEAD, row.state, flags, row.version, row.due, row.planned, row.wake, row.attempt, row.max or 0,
    row.hop, row.created, row.updated, row.finished, #kind, #key, owner and #owner or 0, fault and #fault or 0)
  local rest_at = #head + #kind + #key + (owner and #owner or 0) + (fault and #fault or 0) + 1
  return head .. kind .. key .. (owner or '') .. (fault or '') .. (row.rest or string.sub(row.value, row.rest_at)), rest_at
end

local function look_into(id, value)
  local row = value and unpacked(value)
  if value and not row then
    unreadable[id] = value
  end
  known[id] = row or false
end

-- Reads many rows at once, which are asked for later.
local function preload(ids)
  if #ids > 0 then
    for at, value in ipairs(redis.call('HMGET', rows, unpack(ids))) do
      look_into(ids[at], value)
    end
  end
end

-- The same of ids among what the script was given: from one place on, and so far from each to the next.
local function preload_given(first, step)
  local ids = {}
  for at = first, #ARGV, step do
    ids[#ids + 1] = ARGV[at]
  end
  preload(ids)
end

-- The row of an id, and its value; only its value if it cannot be read, and nothing if there is none.
local function read(id)
  if known[id] == nil then
    look_into(id, redis.call('HGET', rows, id))
  end
  local row = known[id]
  if row and not row.is_gone then
    return row, row.value
  end
  return nil, unreadable[id]
end

-- Has a row written or removed as it has become.
local function mark(id, row)
  known[id] = row
  if not row.is_changed then
    changed[#changed + 1], row.is_changed = id, true
  end
end

-- The first bytes of a row, up to its key: all that a look at it needs.
local function brief(row)
  return string.sub(row.value, 1, row.brief)
end

-- Whether a row of this state is found by its `wake_at`. That of a dead one, and of an intent, is something else.
local function has_wake(state, wake)
  return wake > 0 and state ~= DEAD and state ~= INTENT
end

-- Writes a row as it has become.
local function save(id, row)
  row.value, row.rest_at = packed(row)
  row.rest = nil
  row.lane = lane_of(row.state, row.kind)
  row.brief = SIZE + #row.kind + #row.key
  mark(id, row)
  if row.state == SCHEDULED then
    soon_wake, soon_due = min(soon_wake, row.wake), min(soon_due, row.due)
  elseif row.state == RUNNING then
    soon_wake = min(soon_wake, row.wake)
  elseif row.state == DONE or row.state == CANCELLED then
    soon_purge = min(soon_purge, row.wake)
  end
end

local function remove(id, row)
  row.is_gone = true
  mark(id, row)
end

-- The row of a member of an index, if it is there by right. If not, somebody else has put it there: it is taken away,
-- or put in its place.
local function member(name, lane, id, score)
  local row = read(id)
  if row and row.lane == lane then
    if row[name] == tonumber(score) then
      return row
    end
    strays[#strays + 1] = { name, lane, id, row[name] }
  else
    strays[#strays + 1] = { name, lane, id, false }
    touched[lane] = true
  end
  return nil
end

-- The lanes of these states, in an order that stays the same.
local function lanes_of(states)
  local lanes = {}
  for _, lane in ipairs(redis.call('SMEMBERS', tag .. ':lanes')) do
    if string.find(states, string.sub(lane, 1, 1), 1, true) then
      lanes[#lanes + 1] = lane
    end
  end
  table.sort(lanes)
  return lanes
end

-- Whether one id comes after another: by their bytes, as `<` would go by the server's language.
local function is_after(one, other)
  for at = 1, 16 do
    local a, b = string.byte(one, at), string.byte(other, at)
    if a ~= b then
      return (a or 0) > (b or 0)
    end
  end
  return false
end

-- The place in an index of the first member after this time and id, found without walking over those of one time.
local function place_after(key, score, id)
  local low = redis.call('ZCOUNT', key, '-inf', '(' .. score)
  local high = low + redis.call('ZCOUNT', key, score, score)
  while low < high do
    local middle = math.floor((low + high) / 2)
    local found = redis.call('ZRANGE', key, middle, middle)[1]
    if found and not is_after(found, id) then
      low = middle + 1
    else
      high = middle
    end
  end
  return low
end

-- What a caller says of a due time: in how many ms, or when.
local function due_time(due_in, due_at)
  if due_in == '' then
    return tonumber(due_at)
  end
  return after(tonumber(due_in))
end

local function maybe(text)
  if text == '' then
    return nil
  end
  return tonumber(text)
end

-- Into a state, or to something new within it.
local function enter(row, state)
  row.state, row.version, row.updated = state, row.version + 1, now
end

-- As if it had just been scheduled.
local function schedule_anew(row, due, look_in)
  enter(row, SCHEDULED)
  row.due, row.planned, row.wake = due, due, after(look_in)
  row.attempt, row.hop, row.fault, row.finished = 0, 0, nil, 0
end

local function claim(id, row, owner, lease)
  enter(row, RUNNING)
  row.attempt, row.owner, row.wake = row.attempt + 1, owner, after(lease)
  save(id, row)
end

local function is_live(row)
  return row.state == SCHEDULED or row.state == RUNNING
end

local function millis_until(moment)
  return moment < math.huge and math.max(0, moment - now) or -1
end

-- Numbers as commands take them: to write one down takes longer than all else, and many are alike.
local texts = {}

local function text(number)
  local found = texts[number]
  if not found then
    found = string.format('%.0f', number)
    texts[number] = found
  end
  return found
end

-- What is taken out of each index, and put into it with which scores: by key of the index, and beside it the same by name
-- and lane, as rows ask for it.
local out, into = {}, {}
local out_of_lane, into_lane = { due = {}, wake = {} }, { due = {}, wake = {} }

local function list(lists, by_lane, name, lane)
  local found = by_lane[name][lane]
  if not found then
    found = {}
    by_lane[name][lane] = found
    lists[index(name, lane)] = found
  end
  return found
end

local function take_out(name, lane, id)
  local ids = out_of_lane[name][lane] or list(out, out_of_lane, name, lane)
  ids[#ids + 1] = id
end

local function put_in(name, lane, id, score)
  local scored = into_lane[name][lane] or list(into, into_lane, name, lane)
  local count = #scored
  scored[count + 1], scored[count + 2] = text(score), id
end

-- What has changed of a row in the indexes.
local function reindex(id, row)
  local was_in, was_by_wake = row.was_lane, false
  if was_in then
    was_by_wake = has_wake(row.was_state, row.was_wake)
  end
  local is_in, is_by_wake = nil, false
  if not row.is_gone and row.state ~= INTENT then
    is_in, is_by_wake = row.lane, has_wake(row.state, row.wake)
  end
  local is_moved = was_in ~= is_in
  if is_moved then
    if was_in then
      take_out('due', was_in, id)
      touched[was_in] = true
    end
    if is_in then
      touched[is_in] = true
    end
  end
  if was_by_wake and (is_moved or not is_by_wake) then
    take_out('wake', was_in, id)
  end
  if is_in and (is_moved or row.was_due ~= row.due) then
    put_in('due', is_in, id, row.due)
  end
  if is_by_wake and (is_moved or not was_by_wake or row.was_wake ~= row.wake) then
    put_in('wake', is_in, id, row.wake)
  end
end

-- Writes rows and indexes. What is taken away goes first: once a script has written, a server that is full (maxmemory) no
-- longer refuses the rest, so that it can be emptied.
local function flush()
  local gone, kept = {}, {}
  for _, stray in ipairs(strays) do
    local name, lane, id, score = unpack(stray)
    if not score then
      take_out(name, lane, id)
    elseif not known[id].is_changed then
      put_in(name, lane, id, score)
    end
  end
  for _, id in ipairs(changed) do
    local row = known[id]
    if row.is_gone then
      gone[#gone + 1] = id
    else
      local count = #kept
      kept[count + 1], kept[count + 2] = id, row.value
    end
    reindex(id, row)
  end
  if #gone > 0 then
    redis.call('HDEL', rows, unpack(gone))
  end
  for key, ids in pairs(out) do
    redis.call('ZREM', key, unpack(ids))
  end
  if #kept > 0 then
    redis.call('HSET', rows, unpack(kept))
  end
  for key, scored in pairs(into) do
    redis.call('ZADD', key, unpack(scored))
  end
  for _, step in ipairs(finally) do
    step()
  end
end

-- The end of every script.
local function answer(found)
  flush()
  for lane in pairs(touched) do
    local command = redis.call('EXISTS', index('due', lane), index('wake', lane)) > 0 and 'SADD' or 'SREM'
    redis.call(command, tag .. ':lanes', lane)
  end
  local wake, due = millis_until(soon_wake), millis_until(soon_due)
  if channel ~= '' and math.min(soon_wake, soon_due) <= now + horizon then
    -- A user who may not publish can still write: others then find the row when they look again by themselves.
    redis.pcall('PUBLISH', channel, string.format('%s %d %d', from, wake, due))
  end
  return { now, wake, due, millis_until(soon_purge), found }
end

