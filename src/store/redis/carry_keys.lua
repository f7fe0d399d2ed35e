-- Writes the entries of keys of the epoch before, unless entries of these keys are here, or were.
--
-- ARGV[4]… of each entry: kind, NUL and key; the entry
-- Returns  nothing

if redis.call('EXISTS', tag .. ':sealed') == 1 then
  return answer({})
end
for at = 4, #ARGV, 2 do
  if redis.call('SISMEMBER', gone, key_mark(ARGV[at])) == 0 then
    redis.call('HSETNX', keys, ARGV[at], ARGV[at + 1])
  end
end
return answer({})
