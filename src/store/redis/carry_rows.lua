-- Writes rows of the epoch before, unless rows of their ids are here, or were.
--
-- ARGV[4]… of each row: id, row
-- Returns  how many were written

if redis.call('EXISTS', tag .. ':sealed') == 1 then
  return answer(0)
end
local count = 0
for at = 4, #ARGV, 2 do
  local id, value = ARGV[at], ARGV[at + 1]
  if redis.call('HEXISTS', rows, id) == 0 and redis.call('SISMEMBER', gone, row_mark(id)) == 0 then
    local row = unpacked(value)
    if not row then
      -- What cannot be read stays what it is, for somebody to look at.
      redis.call('HSET', rows, id, value)
      count = count + 1
    elseif row.state ~= INTENT then
      -- A try to redrive it ended with its epoch.
      if row.state == DEAD then
        row.wake = 0
      end
      -- It is in no index here.
      row.was_lane = nil
      save(id, row)
      count = count + 1
    end
  end
end
return answer(count)
