-- Says the time, and whether the server may throw rows away when its memory is full.
--
-- ARGV[4]  whether that is asked (1 or 0)
-- Returns  the part of INFO that says so, or nothing

local info = ''
if ARGV[4] == '1' then
  -- A user who may not ask can still use the store.
  local told = redis.pcall('INFO', 'memory')
  info = type(told) == 'string' and told or ''
end
return answer(info)
