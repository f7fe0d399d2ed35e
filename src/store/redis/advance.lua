-- Takes steps of rows that are still of the version and in the state that they need: scheduled for a hop, running for the
-- end of a claim.
--
-- ARGV[4]… of steps that are alike: the state that their rows enter; when they are due, in ms from now or by the calendar
--          or as before; whether they are as new tasks (1 or 0); whether it is a hop (1 or 0); how many attempts are given
--          back; `+` and why it failed, or nothing; how many there are; then of each: id, version, when to look for its
--          row, in ms from now, or never, and what is noted of it and of its wake-up, or nothing
-- Returns  of each step: 1 if it was taken, else 0, or where its row is as a number below zero

-- What comes before steps that are alike, and how much each of them has.
local FIRST, EACH = 8, 5

-- Calls `take` with the place of what is alike, and with those of the first of the steps and of the last.
local function each_sort(take)
  local at = 4
  while at <= #ARGV do
    local first = at + FIRST
    local next_at = first + EACH * tonumber(ARGV[first - 1])
    take(at, first, next_at - 1)
    at = next_at
  end
end

local ids = {}
each_sort(function(_, first, last)
  for at = first, last, EACH do
    ids[#ids + 1] = ARGV[at]
  end
end)
preload(ids)

local found = {}
each_sort(function(at, first, last)
  local state, due_in, due_at, anew, hop, given_back, fault = unpack(ARGV, at, first - 2)
  local due = (due_in ~= '' or due_at ~= '') and due_time(due_in, due_at)
  state, anew, hop, given_back = tonumber(state), anew == '1', hop == '1', tonumber(given_back)
  fault = fault ~= '' and string.sub(fault, 2)
  local needed = hop and SCHEDULED or RUNNING
  for at = first, last, EACH do
    local id, version, look_in, event, wake = unpack(ARGV, at, at + EACH - 1)
    local row, value = read(id)
    local is_so = row and row.state == needed and row.version == tonumber(version)
    if is_so then
      local updated, due_before = row.updated, row.due
      enter(row, state, due, look_in == '' and 0 or after(tonumber(look_in)), anew)
      if hop then
        row.hop, row.updated = min(row.hop + 1, MOST), updated
      end
      row.attempt, row.fault = math.max(0, row.attempt - given_back), fault or row.fault
      note(id, row, due_before, event, wake)
      save(id, row)
    end
    found[#found + 1] = is_so and 1 or not value and elsewhere(id) or 0
  end
end)
return answer(found)
