-- Asks a shard something, and changes nothing.
--
-- ARGV[1]  what: `now`, `count` (then `STATE:KIND`, and spans of ms), or `kinds` (then the state, after which kind, and how many
--          at the most)
-- Returns  nothing; of each span how many rows are due by then; or the kinds in their order

local what, found = ARGV[1], {}
if what == 'count' then
  for at = 3, #ARGV do
    found[#found + 1] = redis.call('ZCOUNT', tag .. ':due:' .. ARGV[2], '-inf', text(after(tonumber(ARGV[at]))))
  end
elseif what == 'kinds' then
  local first = ARGV[3] == '' and '-' or '(' .. ARGV[3]
  found = redis.call('ZRANGEBYLEX', tag .. ':kinds:' .. ARGV[2], first, '+', 'LIMIT', 0, ARGV[4])
end
return { now, found }
