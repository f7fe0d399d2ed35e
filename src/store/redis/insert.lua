-- Writes new rows, unless their ids or keys are taken. Rows that have a key come here only where there is one slot.
--
-- ARGV[4]… of each row: id, kind, key or nothing; when it is due, in ms from now or else by the calendar; when to look
--          for it, in ms from now; limit of attempts or nothing; whether it replaces (1 or 0); the rest of the row
-- Returns  of each row: 0 (new), or an array: 1 (existing), 2 (replaced) or 3 (running), id, row
--
-- Why a script: whether an id or a key is taken must not change before the row is written.

preload_given(4, 9)
local names = {}
for at = 4, #ARGV, 9 do
  if ARGV[at + 2] ~= '' then
    names[#names + 1] = name_of(ARGV[at + 1], ARGV[at + 2])
  end
end
preload_entries(names)
local found = {}
for at = 4, #ARGV, 9 do
  local id, kind, key, due_in, due_at, look_in, max, replace, rest = unpack(ARGV, at, at + 8)
  local row, value = read(id)
  local name, named = name_of(kind, key), nil
  if value then
    found[#found + 1] = { 1, id, value }
  else
    local other
    if key ~= '' then
      named = entry(name)
      other = named.live and row_of(named.live, kind, key)
    end
    local due = due_time(due_in, due_at)
    if other and is_live(other) then
      local what = 1
      if other.state == RUNNING then
        what = 3
      elseif replace == '1' then
        what = 2
        schedule_anew(other, due, tonumber(look_in))
        other.max, other.rest = maybe(max), rest
        save(named.live, other)
      end
      found[#found + 1] = { what, named.live, other.value }
    else
      save(id, {
        state = SCHEDULED, version = 1, due = due, planned = due, wake = after(tonumber(look_in)), attempt = 0,
        max = maybe(max), hop = 0, created = now, updated = now, finished = 0, kind = kind, key = key, rest = rest,
      })
      if named then
        give(name, named, id, other)
      end
      found[#found + 1] = 0
    end
  end
end
return answer(found)
