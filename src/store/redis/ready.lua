-- Claims due rows of some kinds, the longest due first; or only says which there are.
--
-- ARGV[4]  whether to claim (1 or 0)
-- ARGV[5]  the owner of the claims
-- ARGV[6]  how long their leases are, in ms
-- ARGV[7]… of each kind: kind, how many at the most
-- Returns  of each kind an array: how many members its queue had to give, then of each row: id, row (its first bytes, if
--          it was not claimed)

local claims, owner, lease = ARGV[4] == '1', ARGV[5], tonumber(ARGV[6])
local found = {}
for at = 7, #ARGV, 2 do
  local lane = SCHEDULED .. ':' .. ARGV[at]
  local due = redis.call('ZRANGEBYSCORE', index('due', lane), '-inf', now, 'WITHSCORES', 'LIMIT', 0, ARGV[at + 1])
  local ids = {}
  for at = 1, #due, 2 do
    ids[#ids + 1] = due[at]
  end
  preload(ids)
  local given = { #due / 2 }
  for at = 1, #due, 2 do
    local id = due[at]
    local row = member('due', lane, id, due[at + 1])
    if row then
      if claims then
        claim(id, row, owner, lease)
      end
      given[#given + 1] = id
      given[#given + 1] = claims and row.value or brief(row)
    end
  end
  found[#found + 1] = given
end
return answer(found)
