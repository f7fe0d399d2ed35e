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

-- Lanes that a row came into or left.
local touched = {}
-- When the first of what was written needs a look.
local soon_wake, soon_due, soon_purge = math.huge, math.huge, math.huge

local function after(millis)
  return math.min(now + millis, LAST)
end

-- A row as a table; none if it cannot be read.
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
  row.key = string.sub(value, at, at + key - 1)
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
  row.rest = string.sub(value, at + fault)
  row.lane = row.state .. ':' .. row.kind
  row.was = { state = row.state, lane = row.lane, due = row.due, wake = row.wake }
  return row
end

local function packed(row)
  local flags = (row.max and HAS_MAX or 0) + (row.owner and HAS_OWNER or 0) + (row.fault and HAS_ERROR or 0)
  local owner, fault = row.owner or '', row.fault or ''
  return struct.pack(HEAD, row.state, flags, row.version, row.due, row.planned, row.wake, row.attempt, row.max or 0,
    row.hop, row.created, row.updated, row.finished, #row.kind, #row.key, #owner, #fault)
    .. row.kind .. row.key .. owner .. fault .. row.rest
end

-- The row of an id, and its value; only its value if it cannot be read, and nothing if there is none.
local function read(id)
  local value = redis.call('HGET', rows, id)
  if not value then
    return nil, nil
  end
  return unpacked(value), value
end

-- The first bytes of a row, up to its key: all that a look at it needs.
local function brief(row)
  return string.sub(row.value, 1, row.brief)
end

local function index(name, lane)
  return tag .. ':' .. name .. ':' .. lane
end

-- Whether a row of this state is found by its `wake_at`. That of a dead one, and of an intent, is something else.
local function has_wake(state, wake)
  return wake > 0 and state ~= DEAD and state ~= INTENT
end

local function unindex(id, was)
  if was.state ~= INTENT then
    redis.call('ZREM', index('due', was.lane), id)
    redis.call('ZREM', index('wake', was.lane), id)
    touched[was.lane] = true
  end
end

-- Writes a row as it has become, and what has changed of it into the indexes.
local function save(id, row)
  local was = row.was
  row.value = packed(row)
  row.lane = row.state .. ':' .. row.kind
  row.brief = SIZE + #row.kind + #row.key
  redis.call('HSET', rows, id, row.value)
  local is_moved = not was or was.lane ~= row.lane
  if was and is_moved then
    unindex(id, was)
  end
  if row.state ~= INTENT then
    if is_moved or was.due ~= row.due then
      redis.call('ZADD', index('due', row.lane), row.due, id)
    end
    if has_wake(row.state, row.wake) and (is_moved or was.wake ~= row.wake) then
      redis.call('ZADD', index('wake', row.lane), row.wake, id)
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
  row.was = { state = row.state, lane = row.lane, due = row.due, wake = row.wake }
end

local function remove(id, row)
  redis.call('HDEL', rows, id)
  unindex(id, row.was)
end

-- The row of a member of an index, if it is there by right. If not, somebody else has put it there: it is taken away,
-- or put in its place.
local function member(name, lane, id, score)
  local row = read(id)
  if row and row.lane == lane then
    if row[name] == tonumber(score) then
      return row
    end
    redis.call('ZADD', index(name, lane), row[name], id)
  else
    redis.call('ZREM', index(name, lane), id)
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

-- The end of every script.
local function answer(found)
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

