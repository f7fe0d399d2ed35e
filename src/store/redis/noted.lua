-- Gives what is noted of rows.
--
-- ARGV[4]… ids
-- Returns  of each: what is noted of it, where its row is as a number below zero, or an empty text

local found = {}
for at = 4, #ARGV do
  local id = ARGV[at]
  local row, value = read(id)
  found[#found + 1] = not row and not value and elsewhere(id) or redis.call('HGET', notes, id) or ''
end
return answer(found)
