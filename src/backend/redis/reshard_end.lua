-- Ends the emptying of the epoch before.
--
-- KEYS[1]  the HASH that says how many slots there are
-- ARGV[1]  the epoch that is in use
-- ARGV[2]  the number of slots of the one before
-- ARGV[3]  the channel on which receivers are told
-- Returns  1; or 0 if another epoch is in use
--
-- Why a script: a later epoch must not be taken for emptied.

local kept = redis.call('HMGET', KEYS[1], 'epoch', 'former')
if kept[1] ~= ARGV[1] or kept[2] ~= ARGV[2] then
  return 0
end
redis.call('HDEL', KEYS[1], 'former')
redis.pcall('PUBLISH', ARGV[3], 'crew')
return 1
