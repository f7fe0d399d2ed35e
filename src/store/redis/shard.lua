-- For the scripts that come after it: the rows of one shard, and the indexes over them. No script knows what a transition is:
-- a row is written as it is given, if it still begins as it was read.
--
-- KEYS[1]  the hash tag of the shard; every key of it begins so, and is made here
-- Returns  an array: the time by this server's clock, and what the script itself gives
--
--   TAG:rows                HASH of rows: id of 16 bytes, and the head of the row (`HEAD`)
--   TAG:payloads            HASH of the same rows: what handlers are given, and headers; left out where there is nothing
--   TAG:notes               HASH of the same rows: the wake-up that was sent last, a line break, and lines of history, each
--                           after a line break; left out where there is nothing
--   TAG:due:STATE:KIND      ZSET of the ids of rows of that state and kind, by when they are due
--   TAG:wake:STATE:KIND     ZSET of the same rows by `wake_at`, those left out that have none
--   TAG:kinds:STATE         ZSET of the kinds that have rows in that state, all of score 0: in their order by bytes
--   TAG:first:due:STATE     ZSET of the same kinds, by when the first of their rows is due
--   TAG:first:wake:STATE    ZSET of the same kinds, by the first `wake_at` of their rows
--   TAG:live                HASH of the keys of live rows: kind, NUL and key, and the id
--   TAG:named               ZSET of the other rows that have a key, all of score 0: kind, NUL, key, NUL, when the row was
--                           written (8 bytes, the greatest first) and id
--   TAG:call:TOKEN          what was written by which call, for a while, in a Cluster

local tag = KEYS[1]
local rows, payloads, notes, live, named = tag .. ':rows', tag .. ':payloads', tag .. ':notes', tag .. ':live', tag .. ':named'
local time = redis.call('TIME')
-- Cut off, not rounded: what is due must not be so early.
local now = time[1] * 1000 + math.floor(time[2] / 1000)

-- format, version, wake_at (the least number: none), state, due_at, whether there is a limit of attempts, that limit, how many
-- bytes its payload has, how many with its headers, attempt, updated_at, created_at, planned_at, finished_at, stalls, hop,
-- whether its handler has started, and the lengths of kind, key, last error and owner, which follow in this order.
local HEAD, SIZE, FORMAT = '<BI8i8Bi8BI4I4I4I4i8i8i8i8I4I4BI2I2I4I2', 94, 1
local NO_SHORT, NO_LONG = 65535, 4294967295
local LAST = 253402300799999
-- How many bytes of history a row has at the most.
local HISTORY = 16384
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

-- Arguments of commands that are called once for many, by key.
local function lists()
  return setmetatable({}, {
    __index = function(all, key)
      local list = {}
      all[key] = list
      return list
    end,
  })
end

local function call_each(command, all)
  for key, args in pairs(all) do
    redis.call(command, key, unpack(args))
  end
end

local function call_for(command, key, args)
  if #args > 0 then
    return redis.call(command, key, unpack(args))
  end
  return {}
end

-- How many bytes of a call the payload of a row takes.
local function weight(head)
  return #head >= SIZE and struct.unpack('<I4', head, 36) or 0
end

local function alive(id)
  return id and redis.call('HGET', rows, id) and id
end
