-- For the scripts that come after it: the rows of one shard, and the indexes over them, kept in step.
--
-- KEYS[1]  the hash tag of the shard; every key of it begins so, and is made here
-- ARGV[1]  the channel on which others hear of what is due soon, or nothing
-- ARGV[2]  who tells, and of which shard
-- ARGV[3]  what needs a look within so many ms is told
-- ARGV[4]… what the script itself takes
-- Returns  an array: the time by this server's clock, in how many ms what was written here needs a look because of its
--          `wake_at`, because it is due, because its history is over (each -1: never), and what the script itself gives
--
--   TAG:rows                HASH of rows: id of 16 bytes, and the head of the row: numbers of fixed size, then texts
--   TAG:notes               HASH of the same rows: what is noted of them, the wake-up that was sent last, a line break, and
--                           lines of history, each after a line break; left out where there is nothing
--   TAG:payloads            HASH of the same rows: what handlers are given, and headers; left out where there is nothing
--   TAG:due:STATE:KIND      ZSET of the ids of rows of that state and kind, by when they are due
--   TAG:wake:STATE:KIND     ZSET of the same rows by `wake_at`, those left out that have none
--   TAG:kinds:STATE         ZSET of the kinds that have rows in that state, all of score 0: in their order by bytes
--   TAG:first:wake:STATE    ZSET of the same kinds, by the first `wake_at` of their rows; not for dead ones
--   TAG:first:due:STATE     ZSET of the same kinds, by when the first of their rows is due; for scheduled ones only
--   TAG:keys                HASH of keys: kind, NUL and key, and the ids of its rows (`keys.lua`)
--   TAG:elsewhere           HASH of ids whose rows are in another shard: where, and by which try (`point.lua`)

local tag, channel, from, horizon = KEYS[1], ARGV[1], ARGV[2], tonumber(ARGV[3])
local rows, payloads, pointers = tag .. ':rows', tag .. ':payloads', tag .. ':elsewhere'
local notes = tag .. ':notes'
local time = redis.call('TIME')
-- Cut off, not rounded: what is due must not be so early.
local now = time[1] * 1000 + math.floor(time[2] / 1000)

local SCHEDULED, RUNNING, DONE, DEAD, CANCELLED = 0, 1, 2, 3, 4
-- state, flags, version, due_at, planned_at, wake_at (0: none), attempt, stalls, max_attempts, hop, created_at,
-- updated_at, finished_at (0: none), how many bytes its payload has, how many with its headers, by which try its id was
-- pointed here (0: its id says where it is), the number of the change by a caller that was the last (0: none), and the
-- lengths of kind, key (0: none), owner and last error, which follow in this order. Times are whole ms, which a double has
-- room for.
local HEAD, SIZE = '<BBI6i8i8I6I4I4I4I4I6I6I6I4I4I6I6BBI2I4', 92
local HAS_MAX, HAS_OWNER, HAS_ERROR, STARTED = 1, 2, 4, 8
local LAST, MOST = 253402300799999, 4294967295
-- How many bytes of payloads a script gives: a bound on how long it keeps the server from others. What comes after them is
-- answered with `LATER`, and to be asked for again.
local BYTES = 262144
-- How many bytes of history a row has at the most.
local HISTORY = 16384
-- What is noted of a lease that has ended.
local EXPIRED = '{"event":"expired","by":"sweep"}'
local LATER = 8
-- By how many ms a row is put off that cannot be read; by a later release, perhaps.
local PUT_OFF = 60000

-- Rows that were looked into, false where there is none; values that cannot be read as rows; and the ids of rows that have
-- changed. They are written at the end, with what has changed in indexes: a command takes many rows in hardly more time
-- than one.
local known, unreadable, changed = {}, {}, {}
-- Payloads that are new, by id, and those that are to be given, by the answers that they belong to.
local new_payloads, wanted, spent = {}, {}, 0
-- What is to be noted of rows, by id: lines of history, and the wake-up that was sent.
local lines, sent = {}, {}
-- What somebody else has put where it does not belong: index, lane, id, and its score there or false.
local strays = {}
-- What else is to be written then.
local finally = {}
-- Lanes whose rows have changed, as `STATE:KIND`, each with both.
local touched = {}
-- When the first of what was written needs a look.
local soon_wake, soon_due, soon_purge = math.huge, math.huge, math.huge

local min = math.min

local function after(millis)
  return min(now + millis, LAST)
end

-- Lanes by state and kind, and keys of indexes by name and lane: each is made once.
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

local function touch(lane)
  touched[lane] = true
end

-- A row as a table; none if it cannot be read. What begins with `was` says what indexes it is in. All fields are named at
-- once: a table that grows is made again and again.
local function unpacked(value)
  if #value < SIZE then
    return nil
  end
  local state, flags, version, due, planned, wake, attempt, stalls, max, hop, created, updated, finished, size, weight, try,
    change, kind, key, owner, fault, at = struct.unpack(HEAD, value)
  local key_at = at + kind
  local owner_at = key_at + key
  local fault_at = owner_at + owner
  if state > CANCELLED or flags > 15 or #value ~= fault_at + fault - 1 then
    return nil
  end
  local name = string.sub(value, at, key_at - 1)
  local lane = lane_of(state, name)
  return {
    value = value, state = state, version = version, due = due, planned = planned, wake = wake,
    attempt = attempt, stalls = stalls, max = flags % 2 >= HAS_MAX and max or nil, hop = hop, started = flags >= STARTED,
    created = created, updated = updated, finished = finished, size = size, weight = weight, try = try,
    change = change, kind = name,
    key = key > 0 and string.sub(value, key_at, owner_at - 1) or '',
    owner = flags % 4 >= HAS_OWNER and string.sub(value, owner_at, fault_at - 1) or nil,
    fault = flags % 8 >= HAS_ERROR and string.sub(value, fault_at) or nil,
    lane = lane, was_state = state, was_lane = lane, was_due = due, was_wake = wake, is_changed = false, is_gone = false,
  }
end

local function packed(row)
  local kind, key, owner, fault = row.kind, row.key, row.owner or '', row.fault or ''
  local flags = (row.max and HAS_MAX or 0) + (row.owner and HAS_OWNER or 0) + (row.fault and HAS_ERROR or 0)
    + (row.started and STARTED or 0)
  return struct.pack(HEAD, row.state, flags, row.version, row.due, row.planned, row.wake, row.attempt, row.stalls,
    row.max or 0, row.hop, row.created, row.updated, row.finished, row.size, row.weight, row.try, row.change, #kind,
    #key, #owner, #fault) .. kind .. key .. owner .. fault
end

local function look_into(id, value)
  local row = value and unpacked(value)
  if value and not row then
    unreadable[id] = value
  end
  known[id] = row or false
end

-- Reads many rows at once, which are asked for later; but for those that are known, as they may have changed since.
local function preload(ids)
  local unknown = {}
  for _, id in ipairs(ids) do
    if known[id] == nil then
      unknown[#unknown + 1] = id
    end
  end
  if #unknown > 0 then
    for at, value in ipairs(redis.call('HMGET', rows, unpack(unknown))) do
      look_into(unknown[at], value)
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

-- Where a row is that is not here, as a number below zero; nothing if it is nowhere.
local has_pointers
local function elsewhere(id)
  if has_pointers == nil then
    has_pointers = redis.call('EXISTS', pointers) == 1
  end
  local pointer = has_pointers and redis.call('HGET', pointers, id)
  if pointer and #pointer == 8 then
    return -1 - struct.unpack('<I2', pointer)
  end
  return nil
end

-- Has a row written or removed as it has become.
local function mark(id, row)
  known[id] = row
  if not row.is_changed then
    changed[#changed + 1], row.is_changed = id, true
  end
end

-- Whether a row of this state is found by its `wake_at`.
local function has_wake(state)
  return state ~= DEAD
end

-- Writes a row as it has become.
local function save(id, row)
  row.value = packed(row)
  row.lane = lane_of(row.state, row.kind)
  mark(id, row)
  if row.state == SCHEDULED then
    soon_wake, soon_due = min(soon_wake, row.wake), min(soon_due, row.due)
  elseif row.state == RUNNING then
    soon_wake = min(soon_wake, row.wake)
  elseif row.state ~= DEAD then
    soon_purge = min(soon_purge, row.wake)
  end
end

local function remove(id, row)
  row.is_gone = true
  mark(id, row)
end

-- An answer that is about a row: its payload is put behind it.
local function with_payload(said, id, row)
  spent = spent + row.weight
  wanted[#wanted + 1] = { said, id }
  return said
end

-- Puts payloads behind the answers that wait for theirs.
local function give_payloads()
  local ids = {}
  for at, one in ipairs(wanted) do
    ids[at] = one[2]
  end
  if #ids > 0 then
    for at, payload in ipairs(redis.call('HMGET', payloads, unpack(ids))) do
      local said = wanted[at][1]
      said[#said + 1] = new_payloads[ids[at]] or payload or ''
    end
  end
  wanted = {}
end

-- The row has another payload from now on. What was said of it before is not about that.
local function replace_payload(id, payload)
  give_payloads()
  new_payloads[id] = payload
end

local function is_spent()
  return spent >= BYTES
end

-- The row of a member of an index, if it is there by right. If not, somebody else has put it there: it is taken away,
-- or put in its place.
local function member(name, lane, id, score)
  local row, value = read(id)
  if row and row.lane == lane and (name == 'due' or has_wake(row.state)) then
    if row[name] == tonumber(score) then
      return row
    end
    strays[#strays + 1] = { name, lane, id, row[name] }
  elseif value and not row then
    strays[#strays + 1] = { name, lane, id, now + PUT_OFF }
  else
    strays[#strays + 1] = { name, lane, id, false }
  end
  return nil
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

-- Into a state, or to something new within it: due at a time or as before, `wake` 0 for never; `anew`: as if it had just
-- been scheduled.
local function enter(row, state, due, wake, anew)
  row.state, row.version, row.updated = state, row.version + 1, now
  row.wake, row.started, row.finished = wake, false, state > RUNNING and now or 0
  if due then
    row.due, row.stalls = due, 0
  end
  if anew then
    row.planned, row.attempt, row.hop, row.fault = math.max(due, now), 0, 0, nil
  end
end

-- Notes what has been made of a row, which was due then before, if it was there, unless there is nothing to note.
local function note(id, row, due_before, event, wake)
  if event ~= '' then
    local before = due_before and string.format('%.0f', due_before) or '-'
    lines[id] = string.format('%s\n%.0f %.0f %s %.0f %s', lines[id] or '', row.version, now, before, row.due, event)
  end
  if wake ~= '' then
    sent[id] = string.format('%.0f %.0f %s', row.version, now, wake)
  end
end

local function claim(id, row, owner, lease, noted)
  enter(row, RUNNING, nil, after(lease))
  row.attempt, row.owner = row.attempt + 1, owner
  note(id, row, row.due, noted, '')
  save(id, row)
end

-- Ends the claim of a row if its lease has ended: then it is none. Notes it if so.
local function end_lease(id, row, is_noted)
  if row.state ~= RUNNING or row.wake > now then
    return false
  end
  if not row.started then
    row.attempt = math.max(0, row.attempt - 1)
  end
  enter(row, SCHEDULED, nil, row.wake)
  row.stalls = min(row.stalls + 1, MOST)
  note(id, row, row.due, is_noted and EXPIRED or '', '')
  save(id, row)
  return true
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

-- Arguments of commands that are called once for many, by key.
local function lists()
  return setmetatable({}, {
    __index = function(all, key)
      local list = {}
      all[key] = list
      return list
    end,
  })
end

-- What is taken out of each index, and put into it with which scores.
local out, into = lists(), lists()

local function take_out(key, id)
  local ids = out[key]
  ids[#ids + 1] = id
end

local function put_in(key, id, score)
  local scored = into[key]
  local count = #scored
  scored[count + 1], scored[count + 2] = score, id
end

local function call_each(command, all)
  for key, args in pairs(all) do
    redis.call(command, key, unpack(args))
  end
end

-- What has changed of a row in the indexes.
local function reindex(id, row)
  local was_in, is_in = row.was_lane, not row.is_gone and row.lane or nil
  local was_by_wake = was_in and has_wake(row.was_state)
  local is_by_wake = is_in and has_wake(row.state)
  local is_moved = was_in ~= is_in
  if was_in then
    touch(was_in)
    if is_moved then
      take_out(index('due', was_in), id)
      if was_by_wake then
        take_out(index('wake', was_in), id)
      end
    end
  end
  if is_in then
    touch(is_in)
    if is_moved or row.was_due ~= row.due then
      put_in(index('due', is_in), id, text(row.due))
    end
    if is_by_wake and (is_moved or row.was_wake ~= row.wake) then
      put_in(index('wake', is_in), id, text(row.wake))
    end
  end
end

-- Adds what was noted of rows to what they have: what is oldest is cut off.
local function keep_notes()
  local ids, kept = {}, {}
  for id in pairs(lines) do
    ids[#ids + 1] = id
  end
  for id in pairs(sent) do
    if not lines[id] then
      ids[#ids + 1] = id
    end
  end
  if #ids == 0 then
    return
  end
  for at, old in ipairs(redis.call('HMGET', notes, unpack(ids))) do
    local id = ids[at]
    local text = old or '\n'
    local first = string.find(text, '\n', 1, true) or #text + 1
    local history = string.sub(text, first + 1) .. (lines[id] or '')
    kept[2 * at - 1] = id
    kept[2 * at] = (sent[id] or string.sub(text, 1, first - 1)) .. '\n' .. string.sub(history, -HISTORY)
  end
  redis.call('HSET', notes, unpack(kept))
end

-- Writes rows and indexes. What is new goes first: a server that is full (maxmemory) refuses it, and then nothing is half
-- done.
local function flush()
  local gone, kept, given = {}, {}, {}
  for _, id in ipairs(changed) do
    local row = known[id]
    local payload = new_payloads[id]
    if row.is_gone then
      gone[#gone + 1] = id
    else
      local count = #kept
      kept[count + 1], kept[count + 2] = id, row.value
    end
    if payload and payload ~= '' then
      local count = #given
      given[count + 1], given[count + 2] = id, payload
    end
    reindex(id, row)
  end
  for _, stray in ipairs(strays) do
    local name, lane, id, score = unpack(stray)
    local row = known[id]
    touch(lane)
    if not (row and row.is_changed) then
      if score then
        put_in(index(name, lane), id, text(score))
      else
        take_out(index(name, lane), id)
      end
    elseif not score then
      take_out(index(name, lane), id)
    end
  end
  if #kept > 0 then
    redis.call('HSET', rows, unpack(kept))
  end
  if #given > 0 then
    redis.call('HSET', payloads, unpack(given))
  end
  keep_notes()
  call_each('ZADD', into)
  call_each('ZREM', out)
  if #gone > 0 then
    redis.call('HDEL', rows, unpack(gone))
    redis.call('HDEL', notes, unpack(gone))
    redis.call('HDEL', payloads, unpack(gone))
  end
  for _, step in ipairs(finally) do
    step()
  end
end

-- Keeps what is said of lanes that have changed: whether they have rows, and when the first of them needs a look.
local function keep_lanes()
  local added, removed = lists(), lists()
  local function say(key, kind, score)
    local list = score and added[key] or removed[key]
    if score then
      list[#list + 1] = score
    end
    list[#list + 1] = kind
  end
  local function first(name, lane)
    return redis.call('ZRANGE', index(name, lane), 0, 0, 'WITHSCORES')[2]
  end
  for lane in pairs(touched) do
    local state, kind = string.match(lane, '^([0-4]):(.*)$')
    if state then
      local due = first('due', lane)
      say(tag .. ':kinds:' .. state, kind, due and '0')
      if state == '0' then
        say(tag .. ':first:due:0', kind, due)
      end
      if has_wake(tonumber(state)) then
        say(tag .. ':first:wake:' .. state, kind, first('wake', lane))
      end
    end
  end
  call_each('ZADD', added)
  call_each('ZREM', removed)
end

-- The end of every script.
local function answer(found)
  flush()
  keep_lanes()
  give_payloads()
  local wake, due = millis_until(soon_wake), millis_until(soon_due)
  if channel ~= '' and min(soon_wake, soon_due) <= now + horizon then
    -- A user who may not publish can still write: others then find the row when they look again by themselves.
    redis.pcall('PUBLISH', channel, string.format('%s %d %d', from, wake, due))
  end
  return { now, wake, due, millis_until(soon_purge), found }
end

