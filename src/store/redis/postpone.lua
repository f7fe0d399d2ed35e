-- Moves members of indexes on for a while.
--
-- ARGV[1]  for how many ms
-- ARGV[2]… of each: `STATE:KIND`, which index, `due` or `wake`, and id

pass_though_full()
for at = 2, #ARGV, 3 do
  index_of(ARGV[at])
  redis.call('ZADD', tag .. ':' .. ARGV[at + 1] .. ':' .. ARGV[at], 'XX', text(after(tonumber(ARGV[1]))), ARGV[at + 2])
end
keep_indexes()
return { now, '' }
