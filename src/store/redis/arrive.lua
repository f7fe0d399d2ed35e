-- Looks at the rows that wake-ups name, and claims those that are due.
--
-- ARGV[4]  the owner of the claims
-- ARGV[5]  how long their leases are, in ms
-- ARGV[6]  how many kinds the claimer has room for
-- ARGV[7]… of each kind: kind, room; then of each wake-up: id, version
-- Returns  of each wake-up an array: 0 (claimed) and the row, 1 (early) and its first bytes, 2 (waiting) and its kind, or
--          3 (stale)

local owner, lease, kinds = ARGV[4], tonumber(ARGV[5]), tonumber(ARGV[6])
local room = {}
for at = 7, 5 + 2 * kinds, 2 do
  room[ARGV[at]] = tonumber(ARGV[at + 1])
end

preload_given(7 + 2 * kinds, 2)
local found = {}
for at = 7 + 2 * kinds, #ARGV, 2 do
  local id = ARGV[at]
  local row, value = read(id)
  local said
  if not row then
    -- What cannot be read is shown to the caller, who says so.
    said = value and { 0, value } or { 3 }
  elseif row.state ~= SCHEDULED or row.version ~= tonumber(ARGV[at + 1]) then
    said = { 3 }
  elseif row.due > now then
    said = { 1, brief(row) }
  elseif (room[row.kind] or 0) < 1 then
    said = { 2, row.kind }
  else
    room[row.kind] = room[row.kind] - 1
    claim(id, row, owner, lease)
    said = { 0, row.value }
  end
  found[#found + 1] = said
end
return answer(found)
