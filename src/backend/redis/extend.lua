-- Moves the end of leases.
--
-- KEYS[1]  the ZSET of wake-ups of a shard that were taken: score = when the lease ends, in ms
-- ARGV[1]  the length of the lease from now, in ms
-- ARGV[2]… pairs: when the lease of the claim ends, the member; at most 500
-- Returns  an array: when the leases end now, then for each pair in the order given 1 if it is still held, else 0
--
-- Why a script: as for acknowledging. A lease that has ended and was not yet taken over is still held.

local time = redis.call('TIME')
local lease_end = math.ceil(time[1] * 1000 + time[2] / 1000 + ARGV[1])
local answer, scored = { lease_end }, {}
for at = 2, #ARGV, 2 do
  local is_held = redis.call('ZSCORE', KEYS[1], ARGV[at + 1]) == ARGV[at]
  answer[#answer + 1] = is_held and 1 or 0
  if is_held then
    scored[#scored + 1] = lease_end
    scored[#scored + 1] = ARGV[at + 1]
  end
end
if #scored > 0 then
  redis.call('ZADD', KEYS[1], unpack(scored))
end
return answer
