-- Ends claims of rows that are still running and of the version that they were claimed by.
--
-- ARGV[4]… of claims that end alike: the state that their rows enter; when they are due, in ms from now or by the calendar
--          or as before; when to look for them, in ms from now, or never; whether they are as new tasks (1 or 0); whether
--          the claim was no attempt (1 or 0); whether that they stalled is forgotten (1 or 0); `+` and why it failed, or
--          nothing; how many there are; then of each: id, version
-- Returns  of each claim: 1 if it was ended, else 0, or where its row is as a number below zero

-- What comes before the claims of one end.
local FIRST = 9

-- Calls `take` with the place of each end and that after its claims.
local function each_end(take)
  local at = 4
  while at <= #ARGV do
    local next_at = at + FIRST + 2 * tonumber(ARGV[at + FIRST - 1])
    take(at, next_at)
    at = next_at
  end
end

local ids = {}
each_end(function(at, next_at)
  for at = at + FIRST, next_at - 1, 2 do
    ids[#ids + 1] = ARGV[at]
  end
end)
preload(ids)

local found = {}
each_end(function(at, next_at)
  local state, due_in, due_at, wake_in, anew, give_back, forgives, fault = unpack(ARGV, at, at + FIRST - 2)
  local due = (due_in ~= '' or due_at ~= '') and due_time(due_in, due_at)
  local wake = wake_in == '' and 0 or after(tonumber(wake_in))
  state, fault = tonumber(state), fault ~= '' and string.sub(fault, 2)
  for at = at + FIRST, next_at - 1, 2 do
    local id, version = ARGV[at], ARGV[at + 1]
    local row, value = read(id)
    local is_so = row and row.state == RUNNING and row.version == tonumber(version)
    if is_so then
      if anew == '1' then
        schedule_anew(row, due, 0)
        row.wake = wake
      else
        if state == SCHEDULED then
          enter(row, state)
          row.wake, row.started = wake, false
        else
          finish(row, state, wake)
        end
        row.due = due or row.due
        if give_back == '1' then
          give_attempt_back(row)
        end
        if forgives == '1' then
          row.stalls = 0
        end
      end
      row.fault = fault or row.fault
      save(id, row)
    end
    found[#found + 1] = is_so and 1 or not value and elsewhere(id) or 0
  end
end)
return answer(found)
