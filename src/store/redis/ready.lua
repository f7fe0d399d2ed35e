-- Claims due rows of some kinds, the longest due first.
--
-- ARGV[4]  the owner of the claims
-- ARGV[5]  how long their leases are, in ms
-- ARGV[6]  what is noted of each claim, or nothing
-- ARGV[7]  for how many bytes of payloads there is room
-- ARGV[8]… of each kind: kind, how many at the most
-- Returns  of each kind an array: whether there may be more of it (1 or 0), and of each row an array: id, row, payload

local owner, lease, noted, bytes = ARGV[4], tonumber(ARGV[5]), ARGV[6], tonumber(ARGV[7])
local found = {}
for at = 8, #ARGV, 2 do
  local lane = SCHEDULED .. ':' .. ARGV[at]
  local due = redis.call('ZRANGEBYSCORE', index('due', lane), '-inf', now, 'WITHSCORES', 'LIMIT', 0, ARGV[at + 1])
  local ids = {}
  for at = 1, #due, 2 do
    ids[#ids + 1] = due[at]
  end
  preload(ids)
  local given = { #ids >= tonumber(ARGV[at + 1]) and 1 or 0 }
  for at = 1, #due, 2 do
    if bytes <= 0 or is_spent() then
      given[1] = 1
      break
    end
    local id = due[at]
    local row = member('due', lane, id, due[at + 1])
    if row then
      bytes = bytes - row.size
      claim(id, row, owner, lease, noted)
      given[#given + 1] = with_payload({ id, row.value }, id, row)
    end
  end
  found[#found + 1] = given
end
return answer(found)
