-- Writes a row as an intent, which nobody sees until it is activated.
--
-- ARGV[4]  the nonce of this try
-- ARGV[5]… id, kind, key, limit of attempts or nothing, the rest of the row
-- Returns  an array: 0, or 1 (the id is taken) and the row

local nonce = tonumber(ARGV[4])
local id, kind, key, max, rest = unpack(ARGV, 5, 9)
local row, value = read(id)
if value and not (row and row.state == INTENT) then
  return answer({ 1, value })
end
-- An intent of the same id is replaced: whoever left it can no longer activate it.
save(id, {
  state = INTENT, version = 0, due = now, planned = now, wake = nonce, attempt = 0, max = maybe(max), hop = 0,
  created = now, updated = now, finished = 0, kind = kind, key = key, rest = rest,
})
redis.call('ZADD', intents, now, id)
return answer({ 0 })
