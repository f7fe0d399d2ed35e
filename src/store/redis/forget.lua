-- Forgets a row that was removed: as a former row of its key, and as the one that may be live if nobody has changed that
-- meanwhile.
--
-- ARGV[4]  kind, NUL and key
-- ARGV[5]  id
-- ARGV[6]  the stamp of the entry before the row was removed
-- Returns  nothing

local name, id, stamp = ARGV[4], ARGV[5], ARGV[6]
local named = entry(name)
local is_live = named.live == id and string.format('%.0f', named.stamp) == stamp
if is_live then
  named.live = nil
end
forget(named, id)
save_entry(name, named, not is_live)
return answer({})
