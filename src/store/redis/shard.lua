-- For the scripts that come after it: the rows of one shard, and the indexes over them. No script but `claim.lua` knows what a
-- transition is: a row is written as it is given, if it still begins as it was read.
--
-- KEYS[1]  the hash tag of the shard; every key of it begins so, and is made here
-- Returns  an array: the time by this server's clock, and what the script itself gives
--
--   TAG:rows                HASH of rows: id of 16 bytes, and the head of the row (`HEAD`)
--   TAG:payloads            HASH of the same rows: what handlers are given, and headers; left out where there is nothing
--   TAG:notes               HASH of the same rows: lines of history, each after a line break; left out where there is none
--   TAG:due:STATE:KIND      ZSET of the ids of rows of that state and kind, by when they are due
--   TAG:wake:STATE:KIND     ZSET of the same rows by `wake_at`, those left out that have none
--   TAG:kinds:STATE         ZSET of the kinds that have rows in that state, all of score 0: in their order by bytes
--   TAG:first:due:STATE     ZSET of the same kinds, by when the first of their rows is due
--   TAG:first:wake:STATE    ZSET of the same kinds, by the first `wake_at` of their rows
--   TAG:live                HASH of the keys of live rows: kind, NUL and key, and the id
--   TAG:named               ZSET of the other rows that have a key, all of score 0: kind, NUL, key, NUL, when the row was
--                           written (8 bytes, the greatest first) and id
--   TAG:call:TOKEN          what a write answered, for a while, in a Cluster

local tag = KEYS[1]
local rows, payloads, notes, live, named = tag .. ':rows', tag .. ':payloads', tag .. ':notes', tag .. ':live', tag .. ':named'
local time = redis.call('TIME')
-- Cut off, not rounded: what is due must not be so early.
local now = time[1] * 1000 + math.floor(time[2] / 1000)

-- 1 format, 2 version, 10 wake_at (the least number: none), 18 state, 19 due_at, 27 whether its handler has started,
-- 28 attempt, 32 updated_at, 40 created_at, 48 planned_at, 56 finished_at, 64 the limit of attempts (the least number: none),
-- 72 how many bytes its payload has, 76 stalls, 80 hop, and from 84 the lengths of kind, key, last error and owner (the
-- greatest number: none), which follow in this order.
local SIZE, FORMAT, NONE = 99, 2, 4294967295
local LAST = 253402300799999
-- How many bytes of payloads a script gives: a bound on how long it keeps the server from others.
local BYTES = 262144

local sub, min = string.sub, math.min

-- Numbers as commands take them: many are alike, and to write one down takes longer than all else.
local texts = {}
local function text(number)
  local found = texts[number]
  if not found then
    found = string.format('%.0f', number)
    texts[number] = found
  end
  return found
end

local function after(millis)
  return min(now + millis, LAST)
end

local function call_for(command, key, args)
  if #args > 0 then
    return redis.call(command, key, unpack(args))
  end
  return {}
end

-- How many bytes the payload of a row has.
local function size_of(head)
  return #head >= SIZE and struct.unpack('<I4', head, 72) or 0
end

local function alive(id)
  return id and redis.call('HGET', rows, id) and id
end
