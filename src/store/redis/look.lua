-- Says which rows of lanes come first by an index, and changes no row.
--
-- ARGV[4]  the index, `due` or `wake`
-- ARGV[5]  from which time on, in ms, or nothing
-- ARGV[6]  up to which time, or nothing: up to now
-- ARGV[7]… of each lane: lane, how many of its members to leave out, how many to give
-- Returns  of each lane an array: how many members it had to give; in how many ms the first is that comes after that time
--          (or -1), if all before were given; then of each row: id and row

local name = ARGV[4]
local since = ARGV[5] == '' and '-inf' or ARGV[5]
local last = ARGV[6] == '' and text(now) or ARGV[6]
local found = {}
for at = 7, #ARGV, 3 do
  local lane, offset, count = unpack(ARGV, at, at + 2)
  local key = index(name, lane)
  local members = redis.call('ZRANGEBYSCORE', key, since, last, 'WITHSCORES', 'LIMIT', offset, count)
  local ids = {}
  for at = 1, #members, 2 do
    ids[#ids + 1] = members[at]
  end
  preload(ids)
  local given = { #ids, -1 }
  for at = 1, #members, 2 do
    local row = member(name, lane, members[at], members[at + 1])
    if row then
      given[#given + 1] = members[at]
      given[#given + 1] = row.value
    end
  end
  if #ids < tonumber(count) then
    local next_one = redis.call('ZRANGEBYSCORE', key, '(' .. last, '+inf', 'WITHSCORES', 'LIMIT', 0, 1)[2]
    given[2] = millis_until(tonumber(next_one) or math.huge)
  end
  -- It may be that the lane is none.
  if #ids == 0 and name == 'wake' then
    touch(lane)
  end
  found[#found + 1] = given
end
return answer(found)
