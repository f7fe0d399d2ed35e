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

-- Rows that were read, false where there is none; those of them that have changed; and what is to change in indexes: by
-- key of the index and id the new score, or false. All of it is written at the end: a command takes many rows in hardly
-- more time than one.
local cached, changed, moves = {}, {}, {}
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

-- What indexes a row is in is noted when it is read, and when it has been written.
local function note(row)
  row.is_kept = true
  row.was_state, row.was_lane, row.was_due, row.was_wake = row.state, row.lane, row.due, row.wake
end

-- A row as a table; none if it cannot be read. Its rest is taken out of the value when the row is written anew.
local function unpacked(value)
  if #value < SIZE then
    return nil
  end
  local row = { value = value }
  local flags, kind, key, owner, fault, at
  row.state, flags, row.version, row.due, row.planned, row.wake, row.attempt, row.max, row.hop, row.created,
    row.updated, row.finished, kind, key, owner, fault, at = struct.unpack(HEAD, value)
  if row.state > INTENT or #value < SIZE + kind + key + owner + fault then
    return nil
  end
  row.brief = SIZE + kind + key
  row.kind = string.sub(value, at, at + kind - 1)
  at = at + kind
  row.key = key > 0 and string.sub(value, at, at + key - 1) or ''
  at = at + key
  if flags % 2 < HAS_MAX then
    row.max = nil
  end
  if flags % 4 >= HAS_OWNER then
    row.owner = string.sub(value, at, at + owner - 1)
  end
  at = at + owner
  if flags % 8 >= HAS_ERROR then
    row.fault = string.sub(value, at, at + fault - 1)
  end
  row.rest_at = at + fault
  row.lane = lane_of(row.state, row.kind)
  note(row)
  return row
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
      cached[ids[at]] = value
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
  if cached[id] == nil then
    cached[id] = redis.call('HGET', rows, id)
  end
  if not cached[id] then
    return nil, nil
  end
  return unpacked(cached[id]), cached[id]
end

-- Has a row written as this value, or removed.
local function write(id, value)
  cached[id], changed[id] = value, true
end

-- The first bytes of a row, up to its key: all that a look at it needs.
local function brief(row)
  return string.sub(row.value, 1, row.brief)
end

-- Whether a row of this state is found by its `wake_at`. That of a dead one, and of an intent, is something else.
local function has_wake(state, wake)
  return wake > 0 and state ~= DEAD and state ~= INTENT
end

-- Has an id put into an index by this score, or taken out of it.
local function move(key, id, score)
  moves[key] = moves[key] or {}
  moves[key][id] = score
end

local function unindex(id, row)
  if row.was_state ~= INTENT then
    move(index('due', row.was_lane), id, false)
    move(index('wake', row.was_lane), id, false)
    touched[row.was_lane] = true
  end
end

-- Writes a row as it has become, and what has changed of it into the indexes.
local function save(id, row)
  row.value, row.rest_at = packed(row)
  row.rest = nil
  row.lane = lane_of(row.state, row.kind)
  row.brief = SIZE + #row.kind + #row.key
  write(id, row.value)
  local is_moved = not row.is_kept or row.was_lane ~= row.lane
  if row.is_kept and is_moved then
    unindex(id, row)
  end
  if row.state ~= INTENT then
    if is_moved or row.was_due ~= row.due then
      move(index('due', row.lane), id, row.due)
    end
    if has_wake(row.state, row.wake) and (is_moved or row.was_wake ~= row.wake) then
      move(index('wake', row.lane), id, row.wake)
    end
    if is_moved then
      touched[row.lane] = true
    end
  end
  if row.state == SCHEDULED then
    soon_wake, soon_due = math.min(soon_wake, row.wake), math.min(soon_due, row.due)
  elseif row.state == RUNNING then
    soon_wake = math.min(soon_wake, row.wake)
  elseif row.state == DONE or row.state == CANCELLED then
    soon_purge = math.min(soon_purge, row.wake)
  end
  note(row)
end

local function remove(id, row)
  write(id, false)
  unindex(id, row)
end

-- The row of a member of an index, if it is there by right. If not, somebody else has put it there: it is taken away,
-- or put in its place.
local function member(name, lane, id, score)
  local row = read(id)
  if row and row.lane == lane then
    if row[name] == tonumber(score) then
      return row
    end
    move(index(name, lane), id, row[name])
  else
    move(index(name, lane), id, false)
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

-- Writes rows and indexes. What is taken away goes first: once a script has written, a server that is full (maxmemory) no
-- longer refuses the rest, so that it can be emptied.
local function flush()
  local gone, put = {}, {}
  for id in pairs(changed) do
    if cached[id] then
      put[#put + 1] = id
      put[#put + 1] = cached[id]
    else
      gone[#gone + 1] = id
    end
  end
  if #gone > 0 then
    redis.call('HDEL', rows, unpack(gone))
  end
  local added = {}
  for key, scores in pairs(moves) do
    local out, into = {}, {}
    for id, score in pairs(scores) do
      if score then
        into[#into + 1] = score
        into[#into + 1] = id
      else
        out[#out + 1] = id
      end
    end
    if #out > 0 then
      redis.call('ZREM', key, unpack(out))
    end
    added[key] = into
  end
  if #put > 0 then
    redis.call('HSET', rows, unpack(put))
  end
  for key, into in pairs(added) do
    if #into > 0 then
      redis.call('ZADD', key, unpack(into))
    end
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

