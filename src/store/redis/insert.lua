-- Writes new rows, unless their ids or keys are taken. What is new goes first: a full server refuses it, and nothing is half done.
--
-- ARGV[1]… channel, who tells, and what needs a look within how many ms is told
-- ARGV[4]  the moment of the rows, or nothing: now
-- ARGV[5]… of each row: id, kind, key or nothing; when it is due, in ms from then or `@` and when; when to look for it, in ms
--          from then; what is in its head between due_at and attempt, that included, and from finished_at on; payload and
--          headers; what is noted of it, and of its wake-up, or nothing
-- Returns  the moment, the first `wake_at` and the first due time of the rows, and of each a digit: 1 if it was written

local STEP = 10
local at_now = tonumber(ARGV[4]) or now
local moment = struct.pack('<i8', at_now)
local ids, names = {}, {}
for at = 5, #ARGV, STEP do
  ids[#ids + 1] = ARGV[at]
  if ARGV[at + 2] ~= '' then
    names[#names + 1] = ARGV[at + 1] .. '\0' .. ARGV[at + 2]
  end
end
local there, taken = {}, {}
for at, head in ipairs(call_for('HMGET', rows, ids)) do
  there[ids[at]] = head
end
for at, id in ipairs(call_for('HMGET', live, names)) do
  taken[names[at]] = alive(id)
end

-- A time in a head, by itself: many are alike.
local packed = {}
local function pack(millis)
  local found = packed[millis]
  if not found then
    found = struct.pack('<i8', millis)
    packed[millis] = found
  end
  return found
end

local first_wake, first_due, done = math.huge, math.huge, {}
local heads, given, noted, owners = {}, {}, {}, {}
local last_kind, scheduled
for at = 5, #ARGV, STEP do
  local id, kind, key, due, look_in, middle, rest, payload, event, sent = unpack(ARGV, at, at + STEP - 1)
  local name = key ~= '' and kind .. '\0' .. key
  if there[id] or (name and taken[name]) then
    done[#done + 1] = '0'
  else
    done[#done + 1] = '1'
    there[id] = true
    local due_bytes, due_text, due_at
    if sub(due, 1, 1) == '@' then
      -- As it was given: it may be more than a number of Lua can say.
      due_text, due_bytes = sub(due, 10), sub(due, 2, 9)
      due_at = tonumber(due_text)
    else
      due_at = min(at_now + tonumber(due), LAST)
      due_text, due_bytes = text(due_at), pack(due_at)
    end
    local wake = min(at_now + tonumber(look_in), LAST)
    local planned = due_at > at_now and due_bytes or moment
    heads[#heads + 1] = id
    heads[#heads + 1] = '\1\1\0\0\0\0\0\0\0' .. pack(wake) .. '\0' .. due_bytes .. middle .. moment .. moment .. planned
      .. rest
    if payload ~= '' then
      given[#given + 1] = id
      given[#given + 1] = payload
    end
    if event ~= '' or sent ~= '' then
      local lines = event == '' and '' or '\n1 ' .. text(at_now) .. ' - ' .. due_text .. ' ' .. event
      noted[#noted + 1] = id
      noted[#noted + 1] = (sent == '' and '' or '1 ' .. text(at_now) .. ' ' .. sent) .. '\n' .. lines
    end
    if name then
      taken[name] = true
      owners[#owners + 1] = name
      owners[#owners + 1] = id
    end
    if kind ~= last_kind then
      last_kind, scheduled = kind, lane('0:' .. kind)
    end
    put(scheduled.due, id, due_text)
    put(scheduled.wake, id, text(wake))
    first_wake, first_due = min(first_wake, wake), min(first_due, due_at)
  end
end
call_for('HSET', rows, heads)
call_for('HSET', payloads, given)
call_for('HSET', notes, noted)
call_for('HSET', live, owners)
keep_lanes()
tell(ARGV[1], ARGV[2], ARGV[3], first_wake, first_due)
return { at_now, { min(first_wake, LAST), min(first_due, LAST), table.concat(done) } }
