-- Moves the end of the leases of rows that are still running and of the version that they were claimed by.
--
-- ARGV[4]  how long the leases are from now, in ms
-- ARGV[5]… of each claim: id, version, whether its handler has started (1 or 0)
-- Returns  of each claim: 1 if it is held, else 0, or where its row is as a number below zero

local lease = tonumber(ARGV[4])
preload_given(5, 3)
local found = {}
for at = 5, #ARGV, 3 do
  local id, version, started = unpack(ARGV, at, at + 2)
  local row, value = read(id)
  local is_so = row and row.state == RUNNING and row.version == tonumber(version)
  if is_so then
    row.wake, row.started = after(lease), row.started or started == '1'
    -- Where the clock has gone back since the claim, this lease is none that was given while it was ahead.
    row.updated = math.min(row.updated, now)
    save(id, row)
  end
  found[#found + 1] = is_so and 1 or not value and elsewhere(id) or 0
end
return answer(found)
