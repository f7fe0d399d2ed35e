-- Says how many slots there are.
--
-- KEYS[1]  the HASH that says so
-- ARGV[1]  the epoch that the caller knows
-- ARGV[2]  its number of slots
-- ARGV[3]  that of the epoch before it, or 0
-- Returns  the epoch, its slots, the slots of the epoch before it or 0

return { layout_of(KEYS[1], ARGV[1], ARGV[2], ARGV[3]) }
