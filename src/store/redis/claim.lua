-- Claims rows that are scheduled and due, as far as there is room: the rule of `rules/claim.rs`, here as one step.
--
-- ARGV[1]  the owner of the claims
-- ARGV[2]  how long their leases are, in ms
-- ARGV[3]  what is noted of each claim, or nothing
-- ARGV[4]  for how many bytes of payloads there is room
-- ARGV[5]  how many rows at the most, the longest due first; or nothing where they are named
-- ARGV[6]  of how many kinds there is room
-- ARGV[7]… of each kind: kind, room; then of each row that is named: id, and its version as its head has it
-- Returns  of each row that was claimed: id, head, payload; of each that was found due and is not as it must be: kind, id,
--          head; and whether there may be more that are due (1 or 0), or how many of those named were looked at

local owner, lease, event, bytes, most = ARGV[1], tonumber(ARGV[2]), ARGV[3], tonumber(ARGV[4]), tonumber(ARGV[5])
local room, kinds, first = {}, {}, 7 + 2 * tonumber(ARGV[6])
for at = 7, first - 2, 2 do
  kinds[#kinds + 1] = ARGV[at]
  room[ARGV[at]] = tonumber(ARGV[at + 1])
end
local wake = text(after(lease))
local owner_length, spent = struct.pack('<I4', #owner), 0
local heads, noted, wanted, wrong = {}, {}, {}, {}

-- The kind of a row that is due, when that is, its attempt and version, and where its owner begins; nothing if it is not.
local function read_due(head)
  if #head < SIZE then
    return nil
  end
  local format, version, _, state, due, started, attempt = struct.unpack('<BI8i8Bi8BI4', head)
  local kind, key, fault, had_owner = struct.unpack('<I4I4I4I4', head, 84)
  key, fault = key == NONE and 0 or key, fault == NONE and 0 or fault
  local owner_at = SIZE + kind + key + fault
  local is_sound = format == FORMAT and started <= 1 and #head == owner_at + (had_owner == NONE and 0 or had_owner)
  if is_sound and state == 0 and due <= now then
    return sub(head, SIZE + 1, SIZE + kind), due, attempt, version, owner_at
  end
end

-- Claims rows, each if it is due, of its version if any is given, and there is room; says how many it has looked at. Those of
-- indexes by due time must be due, and each of the kind of its index.
local function claim(ids, versions, index_kinds)
  for at, head in ipairs(call_for('HMGET', rows, ids)) do
    if spent >= BYTES then
      return at - 1
    end
    local id, index_kind, kind, due, attempt, version, owner_at = ids[at], index_kinds and index_kinds[at]
    if head then
      kind, due, attempt, version, owner_at = read_due(head)
    elseif index_kind then
      local out = index_of('0:' .. index_kind).out
      out[#out + 1] = id
    end
    if index_kind and head and kind ~= index_kind then
      put(wrong, id, index_kind)
      wrong[#wrong + 1] = head
    elseif kind and (not versions or sub(head, 2, 9) == versions[at]) and (room[kind] or 0) >= 1 and bytes > 0 then
      local size = size_of(head)
      room[kind], bytes, spent = room[kind] - 1, bytes - size, spent + size
      put(heads, sub(head, 1, 1) .. struct.pack('<I8i8', version + 1, tonumber(wake)) .. '\1' .. sub(head, 19, 27)
        .. struct.pack('<I4i8', min(attempt + 1, NONE), now) .. sub(head, 40, 95) .. owner_length
        .. sub(head, SIZE + 1, owner_at) .. owner, id)
      wanted[#wanted + 1] = id
      local due_text, from, to = text(due), index_of('0:' .. kind), index_of('1:' .. kind)
      from.out[#from.out + 1] = id
      put(to.due, id, due_text)
      put(to.wake, id, wake)
      if event ~= '' then
        local line = '\n' .. text(version + 1) .. ' ' .. text(now) .. ' ' .. due_text .. ' ' .. due_text .. ' ' .. event
        noted[#noted + 1] = { id, line }
      end
    end
  end
  return #ids
end

local looked = 0
if most then
  -- The longest due of all kinds. Each is a due time, its place here, an id and a kind.
  local found, place, edge = {}, 0, now
  local function cut()
    table.sort(found, function(one, other)
      return one[1] < other[1] or one[1] == other[1] and one[2] < other[2]
    end)
    for at = #found, most + 1, -1 do
      found[at], looked = nil, 1
    end
  end
  for _, kind in ipairs(kinds) do
    local count = bytes > 0 and min(room[kind], most) or 0
    local key = tag .. ':due:0:' .. kind
    local members = count > 0 and redis.call('ZRANGEBYSCORE', key, '-inf', edge, 'WITHSCORES', 'LIMIT', 0, count) or {}
    for at = 1, #members, 2 do
      place = place + 1
      found[#found + 1] = { tonumber(members[at + 1]), place, members[at], kind }
    end
    if #members >= 2 * count then
      looked = 1
    end
    if #found > most then
      cut()
      edge = found[most][1]
    end
  end
  cut()
  local ids, index_kinds = {}, {}
  for at, one in ipairs(found) do
    ids[at], index_kinds[at] = one[3], one[4]
  end
  if claim(ids, nil, index_kinds) < #ids then
    looked = 1
  end
else
  local ids, versions = {}, {}
  for at = first, #ARGV, 2 do
    ids[#ids + 1] = ARGV[at]
    versions[#ids] = ARGV[at + 1]
  end
  looked = claim(ids, versions)
end
if #heads > 0 then
  pass_though_full()
  redis.call('HSET', rows, unpack(heads))
  keep_notes(noted)
end
keep_indexes()
local claimed = {}
for at, payload in ipairs(call_for('HMGET', payloads, wanted)) do
  claimed[#claimed + 1], claimed[#claimed + 2], claimed[#claimed + 3] = wanted[at], heads[2 * at], payload or ''
end
return { now, { claimed, wrong, looked } }
