-- Says the time; and whether the server may throw rows away when its memory is full, and others can be told of them.
--
-- ARGV[4]  whether that is asked (1 or 0)
-- Returns  nothing; or an array: the part of INFO that says so, or nothing if it may not be asked; and why others cannot be
--          told, or nothing

if ARGV[4] ~= '1' then
  return answer('')
end
-- A user who may do neither can still use the store.
local info = redis.pcall('INFO', 'memory')
-- Who listens takes it for no message.
local told = redis.pcall('PUBLISH', channel, '')
return answer({
  type(info) == 'string' and info or '',
  type(told) == 'table' and told.err or '',
})
