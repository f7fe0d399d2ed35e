-- Mends leases that were given while the clock was ahead: rows that run and were updated in the future have a lease of the
-- same length from now.
--
-- ARGV[4]  how many rows of each kind to look at: those whose leases end last
-- ARGV[5]… kinds
-- Returns  of each kind: how many were mended

local found = {}
for at = 5, #ARGV do
  local lane = RUNNING .. ':' .. ARGV[at]
  local members = redis.call('ZREVRANGE', index('wake', lane), 0, ARGV[4] - 1, 'WITHSCORES')
  local ids, count = {}, 0
  for at = 1, #members, 2 do
    ids[#ids + 1] = members[at]
  end
  preload(ids)
  for at = 1, #members, 2 do
    local row = member('wake', lane, members[at], members[at + 1])
    if row and row.updated > now then
      row.wake, row.updated, count = after(math.max(0, row.wake - row.updated)), now, count + 1
      save(members[at], row)
    end
  end
  found[#found + 1] = count
end
return answer(found)
