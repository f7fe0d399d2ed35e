-- Moves the end of the leases of rows that are still running and of the version that they were claimed by.
--
-- ARGV[4]  how long the leases are from now, in ms
-- ARGV[5]… of each claim: id, version
-- Returns  of each claim: 1 if it is held, else 0

local lease = tonumber(ARGV[4])
preload_given(5, 2)
local found = {}
for at = 5, #ARGV, 2 do
  local row = read(ARGV[at])
  local is_so = row and row.state == RUNNING and row.version == tonumber(ARGV[at + 1])
  if is_so then
    row.wake = after(lease)
    save(ARGV[at], row)
  end
  found[#found + 1] = is_so and 1 or 0
end
return answer(found)
