-- For the scripts that come after it: rows that wait for their key, which is in another slot.
--
-- Such a row is an intent, which nobody sees, or a dead row with a mark, which is being redriven. Both carry the nonce of
-- the try that they belong to, where other rows have their `wake_at`.

local intents = tag .. ':intents'

local function is_waiting(row)
  return row.state == INTENT or (row.state == DEAD and row.wake > 0)
end

-- Ends the try that a row belongs to: it can no longer become live by it.
local function abandon(id, row)
  redis.call('ZREM', intents, id)
  if row.state == INTENT then
    remove(id, row)
  else
    row.wake = 0
    save(id, row)
  end
end

