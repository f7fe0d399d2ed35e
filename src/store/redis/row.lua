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

-- Values of rows that were read or written, false where there is none; the rows themselves, once they were looked into;
-- and the ids of those that have changed. They are written at the end, with what has changed in indexes: a command takes
-- many rows in hardly more time than one.
local values, known, changed, is_changed = {}, {}, {}, {}
-- What somebody else has put where it does not belong: key of an index, id, and its score there or false.
local strays = {}
-- What else is to be written then.
local finally = {}
-- Lanes that a row came into or left.
local touched = {}
-- When the first of what was written needs a look.
local soon_wake, soon_due, soon_purge = math.huge, math.huge, math.huge

local function after(millis)
  return math.min(now + millis, LAST)
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
    lane = lane, was_state = state, was_lane = lane, was_due = due, was_wake = wake,
  }
end

-- A row as it is kept, and where its rest begins.
local function packed(row)
  local flags = (row.max and HAS_MAX or 0) + (row.owner and HAS_OWNER or 0) + (row.fault and HAS_ERROR or 0)
  local owner, fault = row.owner or '', row.fault or ''
  local rest = row.rest or string.sub(row.value, row.rest_at)
  local value = struct.pack(HEAD, row.state, flags, row.version, row.due, row.planned, row.wake, row.attempt, row.max or 0,
    row.hop, row.created, row.updated, row.finished, #row.kind, #row.key, #owner, #fault)
    .. row.kind .. row.key .. owner .. fault .. rest
  return value, #value - #rest + 1
end

-- Reads many rows at once, which are asked for later.
local function preload(ids)
  if #ids > 0 then
    for at, value in ipairs(redis.call('HMGET', rows, unpack(ids))) do
      values[ids[at]] = value
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

-- The value of an id, false if there is none.
local function value_of(id)
  local value = values[id]
  if value == nil then
    value = redis.call('HGET', rows, id)
    values[id] = value
  end
  return value
end

-- The row of an id, and its value; only its value if it cannot be read, and nothing if there is none.
local function read(id)
  local value = value_of(id)
  if not value then
    return nil, nil
  end
  local row = known[id]
  if not row then
    row = unpacked(value)
    known[id] = row
  end
  return row, value
end

-- Has a row written as this value, or removed.
local function write(id, value)
  values[id] = value
  if not is_changed[id] then
    changed[#changed + 1], is_changed[id] = id, true
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
  known[id] = row
  write(id, row.value)
  if row.state == SCHEDULED then
    soon_wake, soon_due = math.min(soon_wake, row.wake), math.min(soon_due, row.due)
  elseif row.state == RUNNING then
    soon_wake = math.min(soon_wake, row.wake)
  elseif row.state == DONE or row.state == CANCELLED then
    soon_purge = math.min(soon_purge, row.wake)
  end
end

local function remove(id)
  write(id, false)
end

-- The row of a member of an index, if it is there by right. If not, somebody else has put it there: it is taken away,
-- or put in its place.
local function member(name, lane, id, score)
  local row = read(id)
  if row and row.lane == lane then
    if row[name] == tonumber(score) then
      return row
    end
    strays[#strays + 1] = { index(name, lane), id, row[name] }
  else
    strays[#strays + 1] = { index(name, lane), id, false }
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

-- Lists by keys, each made when something is first added.
local function list(lists, key)
  local found = lists[key]
  if not found then
    found = {}
    lists[key] = found
  end
  return found
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

local function put(into, key, id, score)
  local pairs_to_add = list(into, key)
  local count = #pairs_to_add
  pairs_to_add[count + 1], pairs_to_add[count + 2] = text(score), id
end

-- What has changed of a row in the indexes; `row` is nothing for one that was removed.
local function reindex(id, was, row, out, into)
  local was_in, was_by_wake = nil, false
  if was and was.was_lane and was.was_state ~= INTENT then
    was_in, was_by_wake = was.was_lane, has_wake(was.was_state, was.was_wake)
  end
  local is_in, is_by_wake = nil, false
  if row and row.state ~= INTENT then
    is_in, is_by_wake = row.lane, has_wake(row.state, row.wake)
  end
  local is_moved = was_in ~= is_in
  if is_moved then
    if was_in then
      local ids = list(out, index('due', was_in))
      ids[#ids + 1] = id
      touched[was_in] = true
    end
    if is_in then
      touched[is_in] = true
    end
  end
  if was_by_wake and (is_moved or not is_by_wake) then
    local ids = list(out, index('wake', was_in))
    ids[#ids + 1] = id
  end
  if is_in and (is_moved or was.was_due ~= row.due) then
    put(into, index('due', is_in), id, row.due)
  end
  if is_by_wake and (is_moved or not was_by_wake or was.was_wake ~= row.wake) then
    put(into, index('wake', is_in), id, row.wake)
  end
end

-- Writes rows and indexes. What is taken away goes first: once a script has written, a server that is full (maxmemory) no
-- longer refuses the rest, so that it can be emptied.
local function flush()
  local gone, kept, out, into = {}, {}, {}, {}
  for _, stray in ipairs(strays) do
    local key, id, score = unpack(stray)
    if not score then
      local ids = list(out, key)
      ids[#ids + 1] = id
    elseif not is_changed[id] then
      put(into, key, id, score)
    end
  end
  for _, id in ipairs(changed) do
    local value, row = values[id], known[id]
    if value then
      local count = #kept
      kept[count + 1], kept[count + 2] = id, value
      reindex(id, row, row, out, into)
    else
      gone[#gone + 1] = id
      reindex(id, row, nil, out, into)
    end
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
  for key, pairs_to_add in pairs(into) do
    redis.call('ZADD', key, unpack(pairs_to_add))
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

