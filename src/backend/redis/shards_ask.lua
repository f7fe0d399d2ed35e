-- Says how many shards there are.
--
-- KEYS[1]  the HASH that says so
-- ARGV[1]  how many there are to be if nothing is kept
-- Returns  how many there are; 0 if what is kept is no number

return shards_of(KEYS[1], ARGV[1])
