-- Makes an intent, or a dead row with a mark, live: its try has its key.
--
-- ARGV[4]  the nonce of the try
-- ARGV[5]  id
-- ARGV[6]  when it is due, in ms from now or else by the calendar
-- ARGV[8]  when to look for it, in ms from now
-- Returns  an array: 1 and the row, or 0 if somebody has ended the try

local nonce = tonumber(ARGV[4])
local id, due_in, due_at, look_in = unpack(ARGV, 5, 8)
local row = read(id)
if not (row and is_waiting(row) and row.wake == nonce) then
  return answer({ 0 })
end
redis.call('ZREM', intents, id)
if row.state == INTENT then
  row.created = now
end
schedule_anew(row, due_time(due_in, due_at), tonumber(look_in))
save(id, row)
return answer({ 1, row.value })
