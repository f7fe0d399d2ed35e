-- Ends the carrying over of the epoch before.
--
-- KEYS[1]  the HASH that says how many slots there are
-- ARGV[1]  the epoch that is in use
-- ARGV[2]  the number of slots of the one before
-- Returns  1; or 0 if another epoch is in use
--
-- Why a script: a later epoch must not be taken for carried over.

local kept = redis.call('HMGET', KEYS[1], 'epoch', 'former')
if kept[1] ~= ARGV[1] or kept[2] ~= ARGV[2] then
  return 0
end
redis.call('HDEL', KEYS[1], 'former')
return 1
