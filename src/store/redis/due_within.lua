-- Says how many rows of a state and kind are due within some spans of time from now.
--
-- ARGV[4]  `STATE:KIND`
-- ARGV[5]… how many ms
-- Returns  an array of as many counts, in the same order

local key, counts = index('due', ARGV[4]), {}
for at = 5, #ARGV do
  counts[#counts + 1] = redis.call('ZCOUNT', key, '-inf', text(after(tonumber(ARGV[at]))))
end
return answer(counts)
