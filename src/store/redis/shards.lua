-- Says over how many shards rows are spread.
--
-- KEYS[1]  the key that says so
-- ARGV[1]  how many are to be kept where nothing is
-- Returns  how many are kept
--
-- Why a script: of those who are first at the same moment all must hear the same.

local kept = redis.call('GET', KEYS[1])
if not kept then
  redis.call('SET', KEYS[1], ARGV[1])
  kept = ARGV[1]
end
return tonumber(kept)
