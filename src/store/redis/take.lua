-- Takes rows that wake-ups name or that are overdue: claims those that are due, as far as there is room.
--
-- ARGV[4]  the owner of the claims
-- ARGV[5]  how long their leases are, in ms
-- ARGV[6]  what is noted of each claim, or nothing
-- ARGV[7]  for how many ms a row is left alone that is not due, in a sweep, which also ends leases; else nothing
-- ARGV[8]  whether it is noted of these (1 or 0)
-- ARGV[9]  for how many bytes of payloads there is room
-- ARGV[10] for how many kinds there is room
-- ARGV[11]… of each kind: kind, room; then of each row: id, version
-- Returns  of each row: 3 (stale), 4 (it cannot be read), `LATER`, where it is as a number below zero, or an array: 0
--          (claimed), whether its lease had ended (1 or 0), row, payload; 1 (early), the same, the row; 2
--          (waiting), the same, its kind

local owner, lease, noted, retake, bytes = ARGV[4], tonumber(ARGV[5]), ARGV[6], maybe(ARGV[7]), tonumber(ARGV[9])
local are_ends_noted = ARGV[8] == '1'
local room, first = {}, 11 + 2 * tonumber(ARGV[10])
for at = 11, first - 2, 2 do
  room[ARGV[at]] = tonumber(ARGV[at + 1])
end

local function take(id, version)
  local row, value = read(id)
  if not row then
    return value and 4 or elsewhere(id) or 3
  elseif row.version ~= tonumber(version) then
    return 3
  end
  local has_ended = retake and end_lease(id, row, are_ends_noted) and 1 or 0
  if row.state ~= SCHEDULED or (retake and row.wake > now) then
    return 3
  elseif row.due > now then
    if retake then
      row.wake = after(retake)
      save(id, row)
    end
    return { 1, has_ended, row.value }
  elseif bytes <= 0 or (room[row.kind] or 0) < 1 then
    return { 2, has_ended, row.kind }
  end
  room[row.kind], bytes = room[row.kind] - 1, bytes - row.size
  claim(id, row, owner, lease, noted)
  return with_payload({ 0, has_ended, row.value }, id, row)
end

preload_given(first, 2)
local found = {}
for at = first, #ARGV, 2 do
  found[#found + 1] = is_spent() and LATER or take(ARGV[at], ARGV[at + 1])
end
return answer(found)
