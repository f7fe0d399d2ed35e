-- Writes new rows, unless their ids or keys are taken. What is new goes first: a full server refuses it, and nothing is half done.
--
-- ARGV[1]… channel, shard and sender, and what wakes within how many ms is published
-- ARGV[4]  the moment of the rows, or nothing: now
-- ARGV[5]… of each row: id, kind, key or nothing; when it is due, in ms from then or `@` and when; when it wakes, in ms from
--          then; its head, whose times do not count but that which is given; payload and headers; what is noted of it, or nothing
-- Returns  the moment, and of each row a digit: 1 if it was written

local STEP = 8
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

local first, done = math.huge, {}
local heads, given, noted, owners = {}, {}, {}, {}
local last_kind, scheduled
for at = 5, #ARGV, STEP do
  local id, kind, key, due, wakes_in, head, payload, event = unpack(ARGV, at, at + STEP - 1)
  local name = key ~= '' and kind .. '\0' .. key
  if there[id] or (name and taken[name]) then
    done[#done + 1] = '0'
  else
    done[#done + 1] = '1'
    there[id] = true
    local due_bytes, due_text, due_at
    if sub(due, 1, 1) == '@' then
      -- As it was given: it may be more than a number of Lua can say.
      due_text, due_bytes = sub(due, 2), sub(head, 19, 26)
      due_at = tonumber(due_text)
    else
      due_at = min(at_now + tonumber(due), LAST)
      due_text, due_bytes = text(due_at), pack(due_at)
    end
    local wake = min(at_now + tonumber(wakes_in), LAST)
    local planned = due_at > at_now and due_bytes or moment
    put(heads, sub(head, 1, 9) .. pack(wake) .. '\0' .. due_bytes .. sub(head, 27, 31) .. moment .. moment .. planned
      .. sub(head, 56), id)
    if payload ~= '' then
      put(given, payload, id)
    end
    if event ~= '' then
      put(noted, '\n1 ' .. text(at_now) .. ' - ' .. due_text .. ' ' .. event, id)
    end
    if name then
      taken[name] = true
      put(owners, id, name)
    end
    if kind ~= last_kind then
      last_kind, scheduled = kind, index_of('0:' .. kind)
    end
    put(scheduled.due, id, due_text)
    put(scheduled.wake, id, text(wake))
    first = min(first, wake, due_at)
  end
end
call_for('HSET', rows, heads)
call_for('HSET', payloads, given)
call_for('HSET', notes, noted)
call_for('HSET', live, owners)
keep_indexes()
publish(ARGV[1], ARGV[2], ARGV[3], first)
return { at_now, table.concat(done) }
