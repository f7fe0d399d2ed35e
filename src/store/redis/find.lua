-- Gives the rows of ids and keys.
--
-- ARGV[4]… of each: id or nothing, kind and key
-- Returns  of each: 4 (there is none), where it is as a number below zero, or an array: id, row, payload

local names, found = preload_meant(4, 3), {}
for at = 4, #ARGV, 3 do
  local id, kind, key = unpack(ARGV, at, at + 2)
  if id == '' then
    id = meant(names[at], kind, key)
  end
  local row, value
  if id then
    row, value = read(id)
  end
  if row then
    found[#found + 1] = with_payload({ id, value }, id, row)
  else
    -- What cannot be read is shown to the caller, who says so.
    found[#found + 1] = value and { id, value, '' } or id and elsewhere(id) or 4
  end
end
return answer(found)
