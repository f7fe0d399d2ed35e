-- Removes from a slot that is closed what the next epoch has.
--
-- ARGV[4]  how many rows
-- ARGV[5]… the ids of rows; then of each entry: kind, NUL and key
-- Returns  nothing

local last = 4 + tonumber(ARGV[4])
for at = 5, last do
  local id = ARGV[at]
  local row = read(id)
  if row then
    remove(id, row)
  else
    redis.call('HDEL', rows, id)
  end
  redis.call('ZREM', tag .. ':intents', id)
end
for at = last + 1, #ARGV do
  redis.call('HDEL', tag .. ':keys', ARGV[at])
end
return answer({})
