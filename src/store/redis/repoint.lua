-- Has ids point to their rows again whose pointers were lost.
--
-- ARGV[4]… of each id: id, the number of the shard that has its row, by which try the row has noted that its id points there
-- Returns  nothing
--
-- A pointer that is there stays: it is of the row, or somebody else relies on it.

preload_given(4, 3)
for at = 4, #ARGV, 3 do
  local id, shard, try = unpack(ARGV, at, at + 2)
  local _, value = read(id)
  if not value and not redis.call('HGET', pointers, id) then
    redis.call('HSET', pointers, id, struct.pack('<I2I6', tonumber(shard), tonumber(try)))
  end
end
return answer({})
