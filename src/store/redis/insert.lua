-- Writes new rows, unless their ids or keys are taken.
--
-- ARGV[4]… of each row: id, kind, key or nothing; when it is due, in ms from now or else by the calendar; when to look
--          for it, in ms from now; limit of attempts or nothing; the number of the change that it is to a row that it
--          replaces, or nothing where it replaces none; by which try its id points here, 0 where it need not, or nothing
--          where it does not yet: then the row must not be new; how many bytes its payload has; payload and headers; what
--          is noted of it, and of its wake-up, or nothing
-- Returns  of each row: 0 (new), 6 (free: it would be new), `LATER`, where its id points to as a number below zero, or an
--          array: 1 (existing), 2 (replaced) or 3 (running), id, row, and its payload unless it was replaced

local STEP = 13
local names = preload_meant(4, STEP)

-- The row that this very change has replaced, and its id: its answer was lost, so the call was made once more. Perhaps the
-- row has ended since, and is its key's last all the same.
local function replaced(name, change)
  local id = string.sub(entry(name), -16)
  local row = id ~= '' and read(id)
  if row and row.change == change then
    return row, id
  end
  return nil
end

local function insert(at)
  local id, kind, key, due_in, due_at, look_in, max, change, try, size, payload, event, wake =
    unpack(ARGV, at, at + STEP - 1)
  local row, value = read(id)
  if row then
    return with_payload({ 1, id, value }, id, row)
  elseif value then
    return { 1, id, value, '' }
  end
  local due, name = due_time(due_in, due_at), names[at]
  local other, other_id, garbled
  change = maybe(change)
  if name and change then
    other, other_id = replaced(name, change)
    if other then
      return { 2, other_id, other.value }
    end
  end
  if name then
    other, other_id, garbled = live_of(name, kind, key)
  end
  if garbled then
    return { 1, other_id, garbled, '' }
  elseif not other then
    local place = elsewhere(id)
    if place then
      return place
    elseif try == '' then
      return 6
    end
    local new = {
      state = SCHEDULED, version = 1, due = due, planned = math.max(due, now), wake = after(tonumber(look_in)), attempt = 0,
      stalls = 0, max = maybe(max), hop = 0, started = false, created = now, updated = now, finished = 0,
      size = tonumber(size), weight = #payload, try = tonumber(try), change = 0, kind = kind, key = key,
    }
    note(id, new, nil, event, wake)
    save(id, new)
    new_payloads[id] = payload
    if name then
      give(name, id)
    end
    return 0
  end
  end_lease(other_id, other, event ~= '')
  if other.state == RUNNING then
    return with_payload({ 3, other_id, other.value }, other_id, other)
  elseif not change then
    return with_payload({ 1, other_id, other.value }, other_id, other)
  end
  local due_before = other.due
  enter(other, SCHEDULED, due, after(tonumber(look_in)), true)
  other.max, other.size, other.weight, other.change = maybe(max), tonumber(size), #payload, change
  note(other_id, other, due_before, event, wake)
  save(other_id, other)
  replace_payload(other_id, payload)
  if payload == '' then
    finally[#finally + 1] = function()
      redis.call('HDEL', payloads, other_id)
    end
  end
  return { 2, other_id, other.value }
end

local found = {}
for at = 4, #ARGV, STEP do
  found[#found + 1] = is_spent() and LATER or insert(at)
end
return answer(found)
