-- Makes a row the one that may be live under its key: if no other may be, or the other is the one that the caller has
-- found to be gone.
--
-- ARGV[4]  kind, NUL and key
-- ARGV[5]  id
-- ARGV[6]  the stamp of the entry whose row is gone, or nothing
-- ARGV[7]  whether that row is to be remembered (1 or 0)
-- Returns  an array: 0 (it is so), or 1, the stamp of the entry as text, and the id of the other row

local name, id, gone, remember = ARGV[4], ARGV[5], ARGV[6], ARGV[7] == '1'
local named = entry(name)
local stamp = string.format('%.0f', named.stamp)
if named.live and named.live ~= id and stamp ~= gone then
  return answer({ 1, stamp, named.live })
end
give(name, named, id, remember)
return answer({ 0 })
