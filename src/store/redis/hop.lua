-- Records hops of rows that are still scheduled and of the version that they had.
--
-- ARGV[4]… of each hop: id, version, when its next wake-up is overdue in ms from now
-- Returns  of each hop: 1 if it was recorded, else 0, or where its row is as a number below zero

preload_given(4, 3)
local found = {}
for at = 4, #ARGV, 3 do
  local id, version, look_in = unpack(ARGV, at, at + 2)
  local row, value = read(id)
  local is_so = row and row.state == SCHEDULED and row.version == tonumber(version)
  if is_so then
    row.version, row.hop, row.wake = row.version + 1, min(row.hop + 1, MOST), after(tonumber(look_in))
    save(id, row)
  end
  found[#found + 1] = is_so and 1 or not value and elsewhere(id) or 0
end
return answer(found)
