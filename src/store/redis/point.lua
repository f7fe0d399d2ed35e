-- Points ids to the shards in which their rows are about to be, as their keys are there.
--
-- ARGV[4]… of each id: id, the number of the shard, the number of this try, which no other has
-- Returns  of each id: 0 (it points there), 5 (it points elsewhere), `LATER`, or an array: 1 (existing), id, row, payload
--
-- A row notes by which try its id points to it. Whoever removes the row removes the pointer too, if it is still of that
-- try (`unpoint.lua`): so one that another caller is about to rely on, who has made it anew, stays.

preload_given(4, 3)
local found, put = {}, {}
for at = 4, #ARGV, 3 do
  local id, shard, try = unpack(ARGV, at, at + 2)
  local row, value = read(id)
  local place = not value and elsewhere(id)
  if is_spent() then
    found[#found + 1] = LATER
  elseif row then
    found[#found + 1] = with_payload({ 1, id, value }, id, row)
  elseif value then
    found[#found + 1] = { 1, id, value, '' }
  elseif place and place ~= -1 - tonumber(shard) then
    found[#found + 1] = 5
  else
    put[#put + 1] = id
    put[#put + 1] = struct.pack('<I2I6', tonumber(shard), tonumber(try))
    found[#found + 1] = 0
  end
end
if #put > 0 then
  redis.call('HSET', pointers, unpack(put))
end
return answer(found)
