-- Puts members of indexes where they belong, or out of the way.
--
-- ARGV[1]… of each: index and lane, id, the head that its row had (`-`: none), or nothing: any; and the score that it gets, or
--          `+` and in how many ms, or nothing to take it out

pass_though_full()
for at = 1, #ARGV, 4 do
  local index, id, head, score = unpack(ARGV, at, at + 3)
  if head == '' or (redis.call('HGET', rows, id) or '-') == head then
    local key = tag .. ':' .. index
    lane(string.match(index, '^%l+:(.*)$'))
    if score == '' then
      redis.call('ZREM', key, id)
    else
      if sub(score, 1, 1) == '+' then
        score = text(after(tonumber(sub(score, 2))))
      end
      redis.call('ZADD', key, 'XX', score, id)
    end
  end
end
keep_lanes()
return { now, '' }
