-- Looks at the row that may be live under a key that somebody else wants, ends its try if it is not live yet, and
-- replaces it if it is to be.
--
-- ARGV[4]  id, kind, key
-- ARGV[7]  whether to replace (1 or 0)
-- ARGV[8]  when it is due, in ms from now or else by the calendar; when to look for it, in ms from now; limit of attempts
--          or nothing; the rest of the row
-- Returns  an array: 0 (gone), 4 (gone, to be remembered), or 1 (existing), 2 (replaced) or 3 (running), and the row

local id, kind, key, replace, due_in, due_at, look_in, max, rest = unpack(ARGV, 4, 12)
local row, value = read(id)
if not row then
  return answer(value and { 1, value } or { 0 })
elseif row.kind ~= kind or row.key ~= key then
  return answer({ 0 })
elseif is_waiting(row) then
  local is_intent = row.state == INTENT
  abandon(id, row)
  return answer({ is_intent and 0 or 4 })
elseif not is_live(row) then
  return answer({ 4 })
elseif row.state == RUNNING then
  return answer({ 3, value })
elseif replace == '1' then
  schedule_anew(row, due_time(due_in, due_at), tonumber(look_in))
  row.max, row.rest = maybe(max), rest
  save(id, row)
  return answer({ 2, row.value })
end
return answer({ 1, value })
