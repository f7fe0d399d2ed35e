-- Ends claims of rows that are still running and of the version that they were claimed by.
--
-- ARGV[4]… of each claim: id, version; the state that the row enters; when it is due, in ms from now or by the calendar or
--          as before; when to look for it, in ms from now, or never; whether it is as a new task (1 or 0); whether the
--          claim was no attempt (1 or 0); `+` and why it failed, or nothing
-- Returns  of each claim: 1 if it was ended, else 0

preload_given(4, 9)
local found = {}
for at = 4, #ARGV, 9 do
  local id, version, state, due_in, due_at, wake_in, anew, give_back, fault = unpack(ARGV, at, at + 8)
  local row = read(id)
  local is_so = row and row.state == RUNNING and row.version == tonumber(version)
  if is_so then
    enter(row, tonumber(state))
    if due_in ~= '' or due_at ~= '' then
      row.due = due_time(due_in, due_at)
    end
    row.wake = wake_in == '' and 0 or after(tonumber(wake_in))
    if anew == '1' then
      row.planned, row.attempt, row.hop, row.fault, row.finished = row.due, 0, 0, nil, 0
    elseif give_back == '1' then
      row.attempt = math.max(0, row.attempt - 1)
    end
    if fault ~= '' then
      row.fault = string.sub(fault, 2)
    end
    if not is_live(row) then
      row.finished = now
    end
    save(id, row)
  end
  found[#found + 1] = is_so and 1 or 0
end
return answer(found)
