-- Marks a dead row as being redriven.
--
-- ARGV[4]  the nonce of this try
-- ARGV[5]  id
-- ARGV[6]  the version that it must have
-- Returns  1 if it was so, else 0

local row = read(ARGV[5])
local is_so = row and row.state == DEAD and row.version == tonumber(ARGV[6])
if is_so then
  row.wake = tonumber(ARGV[4])
  save(ARGV[5], row)
  redis.call('ZADD', intents, now, ARGV[5])
end
return answer(is_so and 1 or 0)
