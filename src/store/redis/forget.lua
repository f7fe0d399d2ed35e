-- Forgets a row that was removed: as a former row of its key, and as the one that may be live if nobody has changed that
-- meanwhile.
--
-- ARGV[4]  kind, NUL and key
-- ARGV[5]  id
-- ARGV[6]  the stamp of the entry before the row was removed
-- ARGV[7]  whether entries are being carried over from the epoch before (1 or 0): then this one must not come back
-- Returns  nothing

local name, id, stamp, moving = ARGV[4], ARGV[5], ARGV[6], ARGV[7] == '1'
local named = entry(name)
local is_live = named.live == id and string.format('%.0f', named.stamp) == stamp
if is_live then
  named.live = nil
end
forget(named, id)
save_entry(name, named, not is_live)
if moving and is_forgotten(named) then
  redis.call('SADD', gone, key_mark(name))
end
return answer({})
