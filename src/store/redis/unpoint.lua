-- Removes pointers of rows that are gone, unless somebody has made them anew.
--
-- ARGV[4]… of each id: id, the number of the shard, the number of the try that the row had noted
-- Returns  nothing

for at = 4, #ARGV, 3 do
  local id, shard, try = unpack(ARGV, at, at + 2)
  if redis.call('HGET', pointers, id) == struct.pack('<I2I6', tonumber(shard), tonumber(try)) then
    redis.call('HDEL', pointers, id)
  end
end
return answer({})
