-- Begins an epoch with another number of slots.
--
-- KEYS[1]  the HASH that says how many slots there are
-- ARGV[1]  the epoch that is to end
-- ARGV[2]  the number of slots of the next one
-- ARGV[3]  the channel on which others are told
-- ARGV[4]  what they are told
-- Returns  1; or 0 if another epoch is in use, or the one before it is not yet carried over, and nothing was done
--
-- Why a script: of several that begin at the same time one does.

local kept = redis.call('HMGET', KEYS[1], 'epoch', 'slots', 'former')
if kept[1] ~= ARGV[1] or kept[3] then
  return 0
end
redis.call('HSET', KEYS[1], 'epoch', ARGV[1] + 1, 'slots', ARGV[2], 'former', kept[2])
redis.pcall('PUBLISH', ARGV[3], ARGV[4])
return 1
