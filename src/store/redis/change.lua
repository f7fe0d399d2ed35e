-- Changes rows for their callers.
--
-- ARGV[4]  whether there is one slot (1 or 0): only then are keys looked up, and dead rows that have a key redriven here
-- ARGV[5]  for how long history is kept, in ms
-- ARGV[6]… of each change: id or nothing, kind and key; verb, 0 (reschedule), 1 (run now), 2 (cancel) or 3 (redrive);
--          when it is due, in ms from now or else by the calendar; when to look for it, in ms from now; what is
--          expected, 0 (anything), 1 (a version) or 2 (a due time), and which
-- Returns  of each change: 4 (not found), or an array: 0 (done), 1 (too late), 2 (finished), 3 (conflict), or 5 (to be
--          redriven once its key is known to be free); id, row

local alone, history = ARGV[4] == '1', tonumber(ARGV[5])

-- The id of the row that a key means: its live row, else the newest.
local function meant(kind, key)
  local named = entry(name_of(kind, key))
  local live = named.live and row_of(named.live, kind, key)
  if live and is_live(live) then
    return named.live
  end
  local newest = live and named.live or nil
  for _, id in ipairs(named.past) do
    if (not newest or is_after(id, newest)) and redis.call('HEXISTS', rows, id) == 1 then
      newest = id
    end
  end
  return newest
end

local function change(at)
  local id, kind, key, verb, due_in, due_at, look_in, expect, expected = unpack(ARGV, at, at + 8)
  if id == '' then
    id = meant(kind, key)
    if not id then
      return 4
    end
  end
  local row, value = read(id)
  if not row then
    -- What cannot be read is shown to the caller, who says so.
    return value and { 2, id, value } or 4
  end
  local redrive = verb == '3'
  if row.state == INTENT then
    return 4
  elseif is_live(row) and redrive then
    return { 3, id, value }
  elseif row.state == RUNNING then
    return { 1, id, value }
  elseif row.state ~= SCHEDULED and not (row.state == DEAD and redrive) then
    return { 2, id, value }
  end
  if (expect == '1' and row.version ~= tonumber(expected)) or (expect == '2' and row.due ~= tonumber(expected)) then
    return { 3, id, value }
  end
  if redrive and row.key ~= '' then
    if not alone then
      return { 5, id, value }
    end
    local name = name_of(row.kind, row.key)
    local named = entry(name)
    local other = named.live and named.live ~= id and row_of(named.live, row.kind, row.key)
    if other and is_live(other) then
      return { 3, named.live, other.value }
    end
    give(name, named, id, other)
  end
  if verb == '2' then
    enter(row, CANCELLED)
    row.wake, row.finished = after(history), now
  else
    schedule_anew(row, verb == '0' and due_time(due_in, due_at) or now, tonumber(look_in))
  end
  save(id, row)
  return { 0, id, row.value }
end

local ids = {}
for at = 6, #ARGV, 9 do
  if ARGV[at] ~= '' then
    ids[#ids + 1] = ARGV[at]
  end
end
preload(ids)
local found = {}
for at = 6, #ARGV, 9 do
  found[#found + 1] = change(at)
end
return answer(found)
