-- Counts rows, names kinds, and says whether the server keeps what it is given; changes nothing.
--
-- ARGV[1]  what: `count` (then `STATE:KIND`, and spans of ms), `kinds` (then the state, after which kind, and how many at the
--          most), `now`, or `fit` (then the channel)
-- Returns  of each span how many rows are due by then; the kinds in their order; nothing; or the part of INFO that says so, if it
--          may be asked, and why others cannot be told, or nothing

local what, found = ARGV[1], {}
if what == 'count' then
  for at = 3, #ARGV do
    found[#found + 1] = redis.call('ZCOUNT', tag .. ':due:' .. ARGV[2], '-inf', text(after(tonumber(ARGV[at]))))
  end
elseif what == 'kinds' then
  local first = ARGV[3] == '' and '-' or '(' .. ARGV[3]
  found = redis.call('ZRANGEBYLEX', tag .. ':kinds:' .. ARGV[2], first, '+', 'LIMIT', 0, ARGV[4])
elseif what == 'fit' then
  -- A user who may do neither can still use the store. Who listens takes it for no message.
  local info, told = redis.pcall('INFO', 'memory'), redis.pcall('PUBLISH', ARGV[2], '')
  found = { type(info) == 'string' and info or '', type(told) == 'table' and told.err or '' }
end
return { now, found }
