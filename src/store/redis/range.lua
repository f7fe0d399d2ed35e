-- Reads rows in the order of one of their times. Members of indexes that have no row it takes out.
--
-- ARGV[1]  whether payloads are given (1 or 0)
-- ARGV[2]… of each range: the index, `due:STATE` or `wake:STATE`; `=` and the kind, or nothing: every kind; how many kinds to
--          leave out; from how many ms ago on, or nothing; a cursor, or nothing; up to how many ms from now, or nothing;
--          whether the last come first (1 or 0); how many rows at the most
-- Returns  of each range an array: whether there are more kinds (1 or 0); the first time of the index, or nothing; and of each
--          kind the kind, a cursor if there are more rows of it, and of each row: id, its score, head and payload
--
-- A cursor is `T`, a score and an id: after these; or `O` and a number: so many rows on.

local STEP, ROWS, KINDS = 8, 512, 64
local with_payloads, spent = ARGV[1] == '1', 0
local share = math.floor(ROWS * STEP / (#ARGV - 1))

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
for at = 2, #ARGV, STEP do
  local index, kind, skip, since, cursor, within, back, limit = unpack(ARGV, at, at + STEP - 1)
  local state = sub(index, -1)
  local last = within == '' and math.huge or after(tonumber(within))
  local earliest = since == '' and -math.huge or now - since
  local firsts, first, kinds = tag .. ':first:' .. index, '', nil
  skip = tonumber(skip)
  if kind ~= '' then
    kinds = { sub(kind, 2) }
  else
    first = redis.call('ZRANGE', firsts, 0, 0, 'WITHSCORES')[2] or ''
    if within == '' then
      kinds = redis.call('ZRANGE', tag .. ':kinds:' .. state, skip, skip + KINDS)
    else
      kinds = redis.call('ZRANGEBYSCORE', firsts, '-inf', text(last), 'LIMIT', skip, KINDS + 1)
    end
  end
  local has_more = kinds[KINDS + 1] and 1 or 0
  kinds[KINDS + 1] = nil
  local count = min(tonumber(limit), math.max(1, math.floor(share / math.max(1, #kinds))))
  local given = {}
  for _, kind in ipairs(kinds) do
    local key, place, how = tag .. ':' .. index .. ':' .. kind, 0, sub(cursor, 1, 1)
    if how == 'T' then
      place = place_after(key, sub(cursor, 2, -17), sub(cursor, -16))
    elseif how == 'O' then
      place = tonumber(sub(cursor, 2))
    elseif since ~= '' and back == '0' then
      place = redis.call('ZCOUNT', key, '-inf', '(' .. text(earliest))
    end
    local members = redis.call(back == '1' and 'ZREVRANGE' or 'ZRANGE', key, place, place + count, 'WITHSCORES')
    local ids, listed, wanted, next_cursor = {}, {}, {}, ''
    for at = 1, #members, 2 do
      local score = tonumber(members[at + 1])
      if score < earliest or score > last then
        break
      end
      ids[#ids + 1] = members[at]
    end
    local is_cut = #ids > count
    ids[count + 1] = nil
    for at, head in ipairs(call_for('HMGET', rows, ids)) do
      if spent >= BYTES then
        is_cut = true
        break
      elseif head then
        local count = #listed
        listed[count + 1], listed[count + 2], listed[count + 3], listed[count + 4] = ids[at], members[2 * at], head, ''
        wanted[#wanted + 1] = ids[at]
        spent = spent + (with_payloads and size_of(head) or 0)
      else
        local out = index_of(state .. ':' .. kind).out
        out[#out + 1] = ids[at]
      end
    end
    if with_payloads then
      for at, payload in ipairs(call_for('HMGET', payloads, wanted)) do
        listed[4 * at] = payload or ''
      end
    end
    local count = #listed
    if is_cut and (back == '1' or count == 0) then
      next_cursor = 'O' .. place + count / 4
    elseif is_cut then
      next_cursor = 'T' .. listed[count - 2] .. listed[count - 3]
    end
    if count > 0 or is_cut then
      given[#given + 1] = { kind, next_cursor, listed }
    end
  end
  found[#found + 1] = { has_more, first, given }
end
keep_indexes()
return { now, found }
