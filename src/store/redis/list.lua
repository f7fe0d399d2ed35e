-- Gives a page of rows of one state and kind, by due time and id.
--
-- ARGV[4]  `STATE:KIND`
-- ARGV[5]  the due time after which it begins, or nothing
-- ARGV[6]  the id, within that time
-- ARGV[7]  how many rows at the most
-- Returns  an array: whether there may be more (1 or 0), and of each row an array: id, row, payload

-- The place in an index of the first member after this time and id, found without walking over those of one time.
local function place_after(key, score, id)
  local low = redis.call('ZCOUNT', key, '-inf', '(' .. score)
  local high = low + redis.call('ZCOUNT', key, score, score)
  while low < high do
    local middle = math.floor((low + high) / 2)
    local found = redis.call('ZRANGE', key, middle, middle)[1]
    if found and not is_after(found, id) then
      low = middle + 1
    else
      high = middle
    end
  end
  return low
end

local key = index('due', ARGV[4])
local place = ARGV[5] == '' and 0 or place_after(key, ARGV[5], ARGV[6])
local members = redis.call('ZRANGE', key, place, place + ARGV[7] - 1)
preload(members)
local found = { #members >= tonumber(ARGV[7]) and 1 or 0 }
for _, id in ipairs(members) do
  if is_spent() then
    found[1] = 1
    break
  end
  local row, value = read(id)
  if row then
    found[#found + 1] = with_payload({ id, value }, id, row)
  elseif value then
    found[#found + 1] = { id, value, '' }
  end
end
return answer(found)
