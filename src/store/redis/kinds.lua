-- Says of which kinds there are rows in a state.
--
-- ARGV[4]  the state, as a digit
-- Returns  an array of the kinds

local found = {}
for _, lane in ipairs(lanes_of(ARGV[4])) do
  if redis.call('EXISTS', index('due', lane)) == 1 then
    found[#found + 1] = string.sub(lane, 3)
  end
end
return answer(found)
