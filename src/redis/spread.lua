-- Says how many slots there are.
--
-- KEYS[1]  the HASH that says so
-- ARGV[1]  the epoch that the caller knows
-- ARGV[2]  its number of slots
-- Returns  the epoch, its slots, the slots of the epoch before it or 0

return { layout_of(KEYS[1], ARGV[1], ARGV[2]) }
