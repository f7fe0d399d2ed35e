-- For the scripts that come after it and write: the indexes over the rows of one state and kind.

-- What goes into the indexes of `STATE:KIND`, as score and id, and what goes out of both, or of that by `wake_at`.
local changes = {}

local function index_of(name)
  local found = changes[name]
  if not found then
    found = { due = {}, wake = {}, out = {}, asleep = {} }
    changes[name] = found
  end
  return found
end

local function put(list, id, score)
  local count = #list
  list[count + 1], list[count + 2] = score, id
end

-- Writes the indexes, and of each state which kinds have rows in it, and when the first of them is due or wakes.
local function keep_indexes()
  for name, change in pairs(changes) do
    call_for('ZADD', tag .. ':due:' .. name, change.due)
    call_for('ZADD', tag .. ':wake:' .. name, change.wake)
  end
  -- One command for all kinds of a state.
  local commands = { ZADD = {}, ZREM = {} }
  local function keep(key, kind, score)
    local all = commands[score and 'ZADD' or 'ZREM']
    all[key] = all[key] or {}
    if score then
      put(all[key], kind, score)
    else
      all[key][#all[key] + 1] = kind
    end
  end
  for name, change in pairs(changes) do
    local due, wake = tag .. ':due:' .. name, tag .. ':wake:' .. name
    call_for('ZREM', due, change.out)
    call_for('ZREM', wake, change.out)
    call_for('ZREM', wake, change.asleep)
    local state, kind = sub(name, 1, 1), sub(name, 3)
    local first = redis.call('ZRANGE', due, 0, 0, 'WITHSCORES')[2]
    keep(tag .. ':kinds:' .. state, kind, first and '0')
    keep(tag .. ':first:due:' .. state, kind, first)
    keep(tag .. ':first:wake:' .. state, kind, redis.call('ZRANGE', wake, 0, 0, 'WITHSCORES')[2])
  end
  for command, all in pairs(commands) do
    for key, args in pairs(all) do
      redis.call(command, key, unpack(args))
    end
  end
end

-- Adds what was noted of rows to what they have, each `{ id, lines }`: of the lines the last 16 KiB.
local function keep_notes(all)
  local ids, kept = {}, {}
  for at, note in ipairs(all) do
    ids[at] = note[1]
  end
  for at, old in ipairs(call_for('HMGET', notes, ids)) do
    put(kept, sub((old or '') .. all[at][2], -16384), all[at][1])
  end
  call_for('HSET', notes, kept)
end

-- Publishes that rows of the shard are due or wake in so few ms. An account that may not publish can still write: other
-- processes then find the rows when they ask again by themselves.
local function publish(channel, from, horizon, first)
  if first <= now + tonumber(horizon) then
    redis.pcall('PUBLISH', channel, from .. ' ' .. text(math.max(first - now, 0)))
  end
end

-- A server that is full (maxmemory) refuses the first command of a script that may take memory, but none once the script has
-- written. What ends, moves or keeps what is there must pass: so this comes first, which takes none and changes nothing.
local function pass_though_full()
  redis.call('HDEL', rows, '')
end
