-- Changes rows for their callers.
--
-- ARGV[4]  for how long history is kept, in ms
-- ARGV[5]… of each change: id or nothing, kind and key; verb, 0 (reschedule), 1 (run now), 2 (cancel), 3 (redrive) or 4
--          (dismiss); when it is due, in ms from now or else by the calendar; when to look for it, in ms from now; what is
--          expected, 0 (anything), 1 (a version) or 2 (a due time), and which; what is noted of it, and of its wake-up, or
--          nothing; its number, which no other change has
-- Returns  of each change: 4 (not found), `LATER`, where its row is as a number below zero, or an array: 0 (done), 1 (too
--          late), 2 (finished) or 3 (conflict), id, row, payload

local STEP = 12
local history = tonumber(ARGV[4])
local names = preload_meant(5, STEP)

local function change(at)
  local id, kind, key, verb, due_in, due_at, look_in, expect, expected, event, wake, number =
    unpack(ARGV, at, at + STEP - 1)
  if id == '' then
    id = meant(names[at], kind, key)
    if not id then
      return 4
    end
  end
  local row, value = read(id)
  if not row then
    -- What cannot be read is shown to the caller, who says so.
    return value and { 2, id, value, '' } or elsewhere(id) or 4
  end
  local function said(code, id, row)
    return with_payload({ code, id, row.value }, id, row)
  end
  if row.change == tonumber(number) then
    -- Done already, and the answer was lost: so the call was made once more.
    return said(0, id, row)
  end
  end_lease(id, row, event ~= '')
  local is_redrive, of_dead = verb == '3', verb == '3' or verb == '4'
  if is_live(row) and of_dead then
    return said(3, id, row)
  elseif row.state == RUNNING then
    return said(1, id, row)
  elseif row.state ~= SCHEDULED and not (row.state == DEAD and of_dead) then
    return said(2, id, row)
  end
  if (expect == '1' and row.version ~= tonumber(expected)) or (expect == '2' and row.due ~= tonumber(expected)) then
    return said(3, id, row)
  end
  if is_redrive and row.key ~= '' then
    local name = name_of(row.kind, row.key)
    local other, other_id, garbled = live_of(name, row.kind, row.key)
    if other then
      return said(3, other_id, other)
    elseif garbled and other_id ~= id then
      return { 3, other_id, garbled, '' }
    end
    give(name, id)
  end
  local due_before = row.due
  if verb == '2' or verb == '4' then
    enter(row, CANCELLED, nil, after(history))
  else
    enter(row, SCHEDULED, verb == '0' and due_time(due_in, due_at) or now, after(tonumber(look_in)), true)
  end
  row.change = tonumber(number)
  note(id, row, due_before, event, wake)
  save(id, row)
  return said(0, id, row)
end

local found = {}
for at = 5, #ARGV, STEP do
  found[#found + 1] = is_spent() and LATER or change(at)
end
return answer(found)
