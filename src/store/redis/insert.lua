-- Writes new rows, unless their ids or keys are taken. Rows that have a key come here only where there is one slot.
--
-- ARGV[4]… of each row: id, kind, key or nothing; when it is due, in ms from now or else by the calendar; when to look
--          for it, in ms from now; limit of attempts or nothing; whether it replaces (1 or 0); the rest of the row
-- Returns  of each row: 0 (new), or an array: 1 (existing), 2 (replaced) or 3 (running), id, row
--
-- Why a script: whether an id or a key is taken must not change before the row is written.

preload_given(4, 9)
-- The name of a row's key by the place of the row, nothing where it has none.
local names, named = {}, {}
for at = 4, #ARGV, 9 do
  if ARGV[at + 2] ~= '' then
    local name = name_of(ARGV[at + 1], ARGV[at + 2])
    names[at], named[#named + 1] = name, name
  end
end
preload_entries(named)

local function add(id, due, look_in, max, kind, key, rest)
  save(id, {
    state = SCHEDULED, version = 1, due = due, planned = due, wake = after(tonumber(look_in)), attempt = 0,
    max = maybe(max), hop = 0, created = now, updated = now, finished = 0, kind = kind, key = key, rest = rest,
  })
  return 0
end

local function insert(at)
  local id, kind, key, due_in, due_at, look_in, max, replace, rest = unpack(ARGV, at, at + 8)
  local _, value = read(id)
  if value then
    return { 1, id, value }
  end
  local due, name = due_time(due_in, due_at), names[at]
  if not name then
    return add(id, due, look_in, max, kind, key, rest)
  elseif not entry_value(name) then
    give_first(name, id)
    return add(id, due, look_in, max, kind, key, rest)
  end
  local entry = entry(name)
  local other = entry.live and row_of(entry.live, kind, key)
  if not (other and is_live(other)) then
    give(name, entry, id, other)
    return add(id, due, look_in, max, kind, key, rest)
  elseif other.state == RUNNING then
    return { 3, entry.live, other.value }
  elseif replace ~= '1' then
    return { 1, entry.live, other.value }
  end
  schedule_anew(other, due, tonumber(look_in))
  other.max, other.rest = maybe(max), rest
  save(entry.live, other)
  return { 2, entry.live, other.value }
end

local found = {}
for at = 4, #ARGV, 9 do
  found[#found + 1] = insert(at)
end
return answer(found)
