-- Takes rows whose `wake_at` has passed: those whose lease has ended are scheduled again, those that are not due are
-- left alone for a while, and those that are due are claimed where there is room.
--
-- ARGV[4]  the owner of the claims
-- ARGV[5]  how long their leases are, in ms
-- ARGV[6]  for how many ms a row is left alone that is not due
-- ARGV[7]… of each row: id, version, whether there is room for it (1 or 0)
-- Returns  of each row an array: 0 (claimed) and the row, 1 (early) and its first bytes, 2 (waiting) and its kind, or 3
--          (somebody else has it); and whether its lease had ended (1 or 0)

local owner, lease, retake = ARGV[4], tonumber(ARGV[5]), tonumber(ARGV[6])
preload_given(7, 3)
local found = {}
for at = 7, #ARGV, 3 do
  local id, version, has_room = unpack(ARGV, at, at + 2)
  local row = read(id)
  local said = { 3, '', 0 }
  if row and is_live(row) and row.version == tonumber(version) and row.wake <= now then
    local has_ended = row.state == RUNNING
    if has_ended then
      enter(row, SCHEDULED)
    end
    if row.due > now then
      row.wake = after(retake)
      save(id, row)
      said = { 1, brief(row), has_ended and 1 or 0 }
    elseif has_room == '1' then
      claim(id, row, owner, lease)
      said = { 0, row.value, has_ended and 1 or 0 }
    else
      if has_ended then
        save(id, row)
      end
      said = { 2, row.kind, has_ended and 1 or 0 }
    end
  end
  found[#found + 1] = said
end
return answer(found)
