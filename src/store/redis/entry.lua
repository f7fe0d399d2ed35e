-- For the scripts that come after it: which rows have a key.
--
-- An entry of `TAG:keys` is a flag, a stamp that is another one after every change of who may be live, and ids: if the
-- flag is set, the first is that of the only row that may be live under the key; the others are of rows that were live
-- before.

local keys = tag .. ':keys'
local ENTRY = '<BI7'
-- How many former rows of a key are remembered, the newest by id.
local REMEMBERED = 64

local function entry(name)
  local value = redis.call('HGET', keys, name)
  local found = { stamp = 0, past = {} }
  if value and #value >= 8 then
    local flag
    flag, found.stamp = struct.unpack(ENTRY, value)
    for at = 9, #value - 15, 16 do
      local id = string.sub(value, at, at + 15)
      if at == 9 and flag == 1 then
        found.live = id
      else
        found.past[#found.past + 1] = id
      end
    end
  end
  return found
end

local function is_forgotten(found)
  return not found.live and #found.past == 0
end

-- `keeps_stamp` where only former rows have changed: a stamp is for who may be live.
local function save_entry(name, found, keeps_stamp)
  if is_forgotten(found) then
    redis.call('HDEL', keys, name)
    return
  end
  -- Past the clock as well, so that an entry which is made anew repeats no stamp.
  local stamp = keeps_stamp and found.stamp or math.max(found.stamp + 1, time[1] * 1000000 + time[2])
  redis.call('HSET', keys, name, struct.pack(ENTRY, found.live and 1 or 0, stamp)
    .. (found.live or '') .. table.concat(found.past))
end

local function forget(found, id)
  for at = #found.past, 1, -1 do
    if found.past[at] == id then
      table.remove(found.past, at)
    end
  end
end

-- Makes `id` the one that may be live; the one before is remembered if its row is still there.
local function give(name, found, id, remember)
  if found.live and found.live ~= id and remember then
    forget(found, found.live)
    local past, least = found.past, 1
    past[#past + 1] = found.live
    if #past > REMEMBERED then
      for at = 2, #past do
        if is_after(past[least], past[at]) then
          least = at
        end
      end
      table.remove(past, least)
    end
  end
  forget(found, id)
  found.live = id
  save_entry(name, found)
end

local function name_of(kind, key)
  return kind .. '\0' .. key
end

-- The row of an id, if it has this kind and key.
local function row_of(id, kind, key)
  local row = read(id)
  if row and row.kind == kind and row.key == key then
    return row
  end
  return nil
end

