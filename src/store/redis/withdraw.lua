-- Ends a try of the caller's own.
--
-- ARGV[4]  the nonce of the try
-- ARGV[5]  id
-- Returns  nothing

local row = read(ARGV[5])
if row and is_waiting(row) and row.wake == tonumber(ARGV[4]) then
  abandon(ARGV[5], row)
end
return answer({})
