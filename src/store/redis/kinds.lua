-- Says of which kinds there are rows in a state, in their order by bytes.
--
-- ARGV[4]  the state, as a digit
-- ARGV[5]  after which kind, or nothing
-- ARGV[6]  how many at the most
-- Returns  an array: whether there may be more (1 or 0), then the kinds

local after_kind = ARGV[5] == '' and '-' or '(' .. ARGV[5]
local kinds = redis.call('ZRANGEBYLEX', tag .. ':kinds:' .. ARGV[4], after_kind, '+', 'LIMIT', 0, ARGV[6])
return answer({ #kinds >= tonumber(ARGV[6]) and 1 or 0, unpack(kinds) })
