-- Says which rows a key has, as its entry names them, with those that are in this slot.
--
-- ARGV[4]  kind, NUL and key
-- Returns  an array: the stamp of the entry, as text; whether the first one may be live (1 or 0); then of each: id, and
--          the row or nothing

local named = entry(ARGV[4])
local found = { string.format('%.0f', named.stamp), named.live and 1 or 0 }
local function add(id)
  found[#found + 1] = id
  -- Where there is none it is false, which is nothing, and no text.
  found[#found + 1] = redis.call('HGET', rows, id)
end
if named.live then
  add(named.live)
end
for _, id in ipairs(named.past) do
  add(id)
end
return answer(found)
