-- Says what rows are like that wake-ups name, and changes nothing.
--
-- ARGV[4]… of each row: id
-- Returns  of each row: 3 (there is none), 4 (it cannot be read), where it is as a number below zero, or the row

preload_given(4, 1)
local found = {}
for at = 4, #ARGV do
  local row, value = read(ARGV[at])
  found[#found + 1] = row and row.value or value and 4 or elsewhere(ARGV[at]) or 3
end
return answer(found)
