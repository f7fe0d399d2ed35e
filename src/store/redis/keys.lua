-- For the scripts that come after it: which rows have a key.
--
-- An entry of `TAG:keys` is the ids of its rows. The last is the one that was made live last: no other can be live.

local keys = tag .. ':keys'
-- How many rows of a key are remembered.
local REMEMBERED = 64

-- Entries that were read, '' where there is none; and those of them that have changed.
local entries, new_entries = {}, {}

-- Reads many entries at once, which are asked for later.
local function preload_entries(names)
  if #names > 0 then
    for at, value in ipairs(redis.call('HMGET', keys, unpack(names))) do
      entries[names[at]] = value or ''
    end
  end
end

finally[#finally + 1] = function()
  local gone, put = {}, {}
  for name in pairs(new_entries) do
    if entries[name] ~= '' then
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

local function entry(name)
  if not entries[name] then
    entries[name] = redis.call('HGET', keys, name) or ''
  end
  return entries[name]
end

local function name_of(kind, key)
  return kind .. '\0' .. key
end

-- Reads at once what is meant by what the script was given, from one place on, and so far from each to the next: id, kind
-- and key, each nothing where it is not said. Of a key that is the row that may be live. Gives the names of keys by place.
local function preload_meant(first, step)
  local ids, live, names, named = {}, {}, {}, {}
  for at = first, #ARGV, step do
    local id, kind, key = unpack(ARGV, at, at + 2)
    if id ~= '' then
      ids[#ids + 1] = id
    end
    if key ~= '' then
      local name = name_of(kind, key)
      names[at], named[#named + 1] = name, name
    end
  end
  preload(ids)
  preload_entries(named)
  for _, name in ipairs(named) do
    if entries[name] ~= '' then
      live[#live + 1] = string.sub(entries[name], -16)
    end
  end
  preload(live)
  return names
end

-- The row that is live under a key, and its id. Of a row that cannot be read only the value, and the id.
local function live_of(name, kind, key)
  local named = entry(name)
  if named == '' then
    return nil
  end
  local id = string.sub(named, -16)
  local row, value = read(id)
  if row and is_live(row) and row.kind == kind and row.key == key then
    return row, id
  elseif value and not row then
    return nil, id, value
  end
  return nil
end

local function forget(name, id)
  local kept, named = {}, entry(name)
  for at = 1, #named - 15, 16 do
    local other = string.sub(named, at, at + 15)
    if other ~= id then
      kept[#kept + 1] = other
    end
  end
  entries[name], new_entries[name] = table.concat(kept), true
  return kept
end

-- Makes a row the one that was made live last.
local function give(name, id)
  if entry(name) == '' then
    entries[name], new_entries[name] = id, true
    return
  end
  local kept = forget(name, id)
  kept[#kept + 1] = id
  entries[name] = table.concat(kept, '', math.max(1, #kept - REMEMBERED + 1))
end

-- The id of the row that a key means: its live row, else the newest, by when it was written and then by id.
local function meant(name, kind, key)
  local row, id = live_of(name, kind, key)
  if row then
    return id
  end
  local named, ids, newest, created = entry(name), {}, nil, -1
  for at = 1, #named - 15, 16 do
    ids[#ids + 1] = string.sub(named, at, at + 15)
  end
  preload(ids)
  for _, id in ipairs(ids) do
    local row, value = read(id)
    if row and (row.created > created or (row.created == created and is_after(id, newest))) then
      newest, created = id, row.created
    elseif value and not row then
      -- What cannot be read is shown to the caller, who says so.
      newest = newest or id
    end
  end
  return newest
end

