-- Puts members of indexes where they belong, or out of the way.
--
-- ARGV[1]… of each: index and lane, id, the score that it was found with, or nothing: any; the head that its row had, or
--          nothing; and the score that it gets, or `+` and in how many ms, or nothing to take it out

pass_though_full()
for at = 1, #ARGV, 5 do
  local index, id, was, head, score = unpack(ARGV, at, at + 4)
  local is = redis.call('ZSCORE', tag .. ':' .. index, id)
  local is_same = is and tonumber(is) == tonumber(was) and (redis.call('HGET', rows, id) or '') == head
  if is and (was == '' or is_same) then
    local name, lane = string.match(index, '^(%l+):(.*)$')
    touched[lane] = true
    if score == '' then
      take(name, lane, id)
    elseif sub(score, 1, 1) == '+' then
      put(name, lane, id, text(after(tonumber(sub(score, 2)))))
    else
      put(name, lane, id, score)
    end
  end
end
keep_lanes()
return { now, '' }
