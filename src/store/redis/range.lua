-- Reads rows of lanes, in the order of one of their times.
--
-- ARGV[1]  whether payloads are given (1 or 0)
-- ARGV[2]  whether it is to be said when the shard next needs a look (1 or 0)
-- ARGV[3]… of each range: the index, `due` or `wake`; the state; `=` and the kind, or nothing: every kind; how many kinds to
--          leave out; from where on: nothing, `A` and how many ms ago, `T` and after which time, or `O` and how many rows to
--          leave out; after which id of that time; up to how many ms from now, or nothing; whether the last come first (1 or 0);
--          how many rows at the most
-- Returns  of each range an array: whether there are more kinds (1 or 0), and of each kind an array: the kind, whether there are
--          more rows of it (1 or 0), and of each row: id, its score, head (`-`: there is none) and payload; then, if asked
--          for, an array of times, each -1 where there is none: the first `wake_at` of scheduled and of running rows, when the
--          first scheduled row is due, and the first `wake_at` of rows that are over

local STEP, ROWS, LANES = 9, 512, 64
local with_payloads, spent = ARGV[1] == '1', 0
local share = math.floor(ROWS / math.max(1, (#ARGV - 2) / STEP))

-- Whether one id comes after another: by their bytes, as `<` would go by the server's language.
local function is_after(one, other)
  for at = 1, 16 do
    local a, b = string.byte(one, at) or 0, string.byte(other, at) or 0
    if a ~= b then
      return a > b
    end
  end
  return false
end

-- How many members of an index come before a time and id, that one included: found without walking over those of one time.
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

local found = {}
for at = 3, #ARGV, STEP do
  local index, state, kind, skip, from, after_id, within, back, limit = unpack(ARGV, at, at + STEP - 1)
  local last = within == '' and math.huge or after(tonumber(within))
  local how, value = sub(from, 1, 1), sub(from, 2)
  local first = how == 'A' and now - value or -math.huge
  skip = tonumber(skip)
  local kinds
  if kind ~= '' then
    kinds = { sub(kind, 2) }
  elseif within == '' then
    kinds = redis.call('ZRANGE', tag .. ':kinds:' .. state, skip, skip + LANES)
  else
    local key = tag .. ':first:' .. index .. ':' .. state
    kinds = redis.call('ZRANGEBYSCORE', key, '-inf', text(last), 'LIMIT', skip, LANES + 1)
  end
  local given = { kinds[LANES + 1] and 1 or 0 }
  kinds[LANES + 1] = nil
  local count = min(tonumber(limit), math.max(1, math.floor(share / math.max(1, #kinds))))
  for _, kind in ipairs(kinds) do
    local key = tag .. ':' .. index .. ':' .. state .. ':' .. kind
    local place = 0
    if how == 'T' then
      place = place_after(key, value, after_id)
    elseif how == 'O' then
      place = tonumber(value)
    elseif how == 'A' and back == '0' then
      place = redis.call('ZCOUNT', key, '-inf', '(' .. text(first))
    end
    local members = redis.call(back == '1' and 'ZREVRANGE' or 'ZRANGE', key, place, place + count, 'WITHSCORES')
    local ids = {}
    for at = 1, #members, 2 do
      local score = tonumber(members[at + 1])
      if score < first or score > last then
        break
      end
      ids[#ids + 1] = members[at]
    end
    local lane = { kind, ids[count + 1] and count < tonumber(limit) and 1 or 0 }
    ids[count + 1] = nil
    local wanted = {}
    for at, head in ipairs(call_for('HMGET', rows, ids)) do
      if spent >= BYTES then
        lane[2] = 1
        break
      end
      local place = #lane
      lane[place + 1], lane[place + 2], lane[place + 3], lane[place + 4] = ids[at], members[2 * at], head or '-', ''
      wanted[#wanted + 1] = ids[at]
      spent = spent + (with_payloads and weight(head or '') or 0)
    end
    if with_payloads then
      for at, payload in ipairs(call_for('HMGET', payloads, wanted)) do
        lane[2 + 4 * at] = payload or ''
      end
    end
    if #lane > 2 or lane[2] == 1 then
      given[#given + 1] = lane
    end
  end
  found[#found + 1] = given
end
if ARGV[2] == '1' then
  local function first_of(name)
    return tonumber(redis.call('ZRANGE', tag .. ':first:' .. name, 0, 0, 'WITHSCORES')[2]) or math.huge
  end
  local firsts = { first_of('wake:0'), first_of('wake:1'), first_of('due:0'), min(first_of('wake:2'), first_of('wake:4')) }
  for at, first in ipairs(firsts) do
    firsts[at] = first < math.huge and math.max(first, 0) or -1
  end
  found[#found + 1] = firsts
end
return { now, found }
