-- Gives a page of rows of one state and kind, by due time and id.
--
-- ARGV[4]  `STATE:KIND`
-- ARGV[5]  the due time after which it begins, or nothing
-- ARGV[6]  the id, within that time
-- ARGV[7]  how many rows at the most
-- Returns  an array: how many members the index had to give; then of each row: id, row

local key = index('due', ARGV[4])
local place = ARGV[5] == '' and 0 or place_after(key, ARGV[5], ARGV[6])
local members = redis.call('ZRANGE', key, place, place + ARGV[7] - 1)
local found = { #members }
for _, id in ipairs(members) do
  local value = redis.call('HGET', rows, id)
  if value then
    found[#found + 1] = id
    found[#found + 1] = value
  end
end
return answer(found)
