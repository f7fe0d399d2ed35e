-- For the scripts that come after it: which rows have a key.
--
-- An entry of `TAG:keys` is a flag, a stamp that is another one after every change of who may be live, and ids: if the
-- flag is set, the first is that of the only row that may be live under the key; the others are of rows that were live
-- before.

local keys = tag .. ':keys'
local ENTRY = '<BI7'
-- How many former rows of a key are remembered, the newest by id.
local REMEMBERED = 64

-- Entries that were read, false where there is none; and those of them that have changed.
local entries, new_entries = {}, {}

-- Reads many entries at once, which are asked for later.
local function preload_entries(names)
  if #names > 0 then
    for at, value in ipairs(redis.call('HMGET', keys, unpack(names))) do
      entries[names[at]] = value
    end
  end
end

finally[#finally + 1] = function()
  local gone, put = {}, {}
  for name in pairs(new_entries) do
    if entries[name] then
      put[#put + 1] = name
      put[#put + 1] = entries[name]
    else
      gone[#gone + 1] = name
    end
  end
  if #gone > 0 then
    redis.call('HDEL', keys, unpack(gone))
  end
  if #put > 0 then
    redis.call('HSET', keys, unpack(put))
  end
end

-- An entry as it is kept, false where there is none.
local function entry_value(name)
  if entries[name] == nil then
    entries[name] = redis.call('HGET', keys, name)
  end
  return entries[name]
end

local function entry(name)
  local value = entry_value(name)
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
  new_entries[name] = true
  if is_forgotten(found) then
    entries[name] = false
    return
  end
  -- Past the clock as well, so that an entry which is made anew repeats no stamp.
  local stamp = keeps_stamp and found.stamp or math.max(found.stamp + 1, time[1] * 1000000 + time[2])
  entries[name] = struct.pack(ENTRY, found.live and 1 or 0, stamp) .. (found.live or '') .. table.concat(found.past)
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

-- The same where no row has the key, or ever had.
local function give_first(name, id)
  new_entries[name] = true
  entries[name] = struct.pack(ENTRY, 1, time[1] * 1000000 + time[2]) .. id
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

