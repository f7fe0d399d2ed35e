-- Ends claims.
--
-- KEYS[1]  the ZSET of wake-ups of a shard that were taken: score = when the lease ends, in ms
-- ARGV     pairs: when the lease of the claim ends, the member; at most 500 (`unpack` stops at about 8,000 values)
-- Returns  how many were ended
--
-- Why a script: a claim whose lease has ended may be another receiver's by now, and its former owner must not end it.

local ended = {}
for at = 1, #ARGV, 2 do
  if redis.call('ZSCORE', KEYS[1], ARGV[at + 1]) == ARGV[at] then
    ended[#ended + 1] = ARGV[at + 1]
  end
end
if #ended == 0 then
  return 0
end
return redis.call('ZREM', KEYS[1], unpack(ended))
