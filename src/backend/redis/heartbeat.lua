-- Announces that a process receives, and returns which others do and how many shards there are.
--
-- KEYS[1]  the ZSET of the receiving processes: score = when they count as gone, in ms
-- KEYS[2]  the HASH that says how many shards there are
-- ARGV[1]  the process
-- ARGV[2]  after how many ms it counts as gone; 0: it leaves
-- ARGV[3]  how many shards there are to be if nothing is kept
-- ARGV[4]  the channel that announces a process that came or left
-- Returns  an array: how many shards there are, or 0 if what is kept is no number; then the receiving processes
--
-- Why a script: one call for all of it, and the server's clock.

local members, me = KEYS[1], ARGV[1]
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local found = redis.call('ZRANGE', members, 0, -1, 'WITHSCORES')
local others, gone, was_here = {}, {}, false
for at = 1, #found, 2 do
  if found[at] == me then
    was_here = true
  elseif tonumber(found[at + 1]) <= now then
    gone[#gone + 1] = found[at]
  else
    others[#others + 1] = found[at]
  end
end
-- Begins with a removal, even of nothing: once a script has written, a server that is full (maxmemory) does not
-- refuse the little that is added here, without which it would never be emptied.
redis.call('ZREM', members, '', unpack(gone))
local stays = tonumber(ARGV[2]) > 0
if stays then
  redis.call('ZADD', members, now + ARGV[2], me)
  others[#others + 1] = me
else
  redis.call('ZREM', members, me)
end
if was_here ~= stays or #gone > 0 then
  redis.pcall('PUBLISH', ARGV[4], 'members')
end
return { shards_of(KEYS[2], ARGV[3]), unpack(others) }
