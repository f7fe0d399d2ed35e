-- Claims rows that are scheduled and due, as far as there is room.
--
-- ARGV[1]  the owner of the claims
-- ARGV[2]  how long their leases are, in ms
-- ARGV[3]  what is noted of each claim, or nothing
-- ARGV[4]  for how many bytes of payloads there is room
-- ARGV[5]  how many rows at the most, the longest due first; or nothing where they are named
-- ARGV[6]  of how many kinds there is room
-- ARGV[7]… of each kind: kind, room; then of each row that is named: id, and its version as its head has it
-- Returns  an array of arrays: of each row that was claimed: id, head, payload; of each that was found due and is not right:
--          lane, id, score, head (`-`: none); those named that are not here; and, of those that are to be asked for again,
--          whether there may be any (1 or 0), or how many of those named were looked at

local owner, lease, event, bytes, most = ARGV[1], tonumber(ARGV[2]), ARGV[3], tonumber(ARGV[4]), tonumber(ARGV[5])
local room, kinds, first = {}, {}, 7 + 2 * tonumber(ARGV[6])
for at = 7, first - 2, 2 do
  kinds[#kinds + 1] = ARGV[at]
  room[ARGV[at]] = tonumber(ARGV[at + 1])
end
local wake = text(after(lease))
local owner_length, spent = struct.pack('<I2', #owner), 0
local claimed, wrong, absent, looked = {}, {}, {}, 0
local heads, noted, wanted = {}, {}, {}

-- Claims a row that is as it has to be, of one version or any; of one kind or any that there is room for.
local function claim(id, head, named_version, lane_kind, score)
  local version, state, due, size, weight, attempt, kind, key, fault, had_owner, is_sound
  if head and #head >= SIZE then
    local format, started, has_max, _
    format, version, _, state, due, has_max, _, size, weight, attempt, _, _, _, _, _, _, started, kind, key, fault, had_owner =
      struct.unpack(HEAD, head)
    key, fault = key == NO_SHORT and 0 or key, fault == NO_LONG and 0 or fault
    local length = SIZE + kind + key + fault + (had_owner == NO_SHORT and 0 or had_owner)
    is_sound = format == FORMAT and state <= 4 and has_max <= 1 and started <= 1 and #head == length
  end
  if not is_sound then
    return lane_kind and 'wrong'
  end
  local owner_at = SIZE + kind + key + fault
  kind = sub(head, SIZE + 1, SIZE + kind)
  if lane_kind and (state ~= 0 or kind ~= lane_kind or text(due) ~= text(tonumber(score))) then
    return 'wrong'
  elseif state ~= 0 or due > now or (named_version and sub(head, 2, 9) ~= named_version) then
    return nil
  elseif (room[kind] or 0) < 1 or bytes <= 0 then
    return nil
  end
  room[kind], bytes, spent = room[kind] - 1, bytes - size, spent + weight
  head = sub(head, 1, 1) .. struct.pack('<I8i8', version + 1, tonumber(wake)) .. '\1' .. sub(head, 19, 39)
    .. struct.pack('<I4i8', min(attempt + 1, NO_LONG), now) .. sub(head, 52, 92) .. owner_length
    .. sub(head, 95, owner_at) .. owner
  heads[#heads + 1] = id
  heads[#heads + 1] = head
  wanted[#wanted + 1] = id
  local due_text, from, to = text(due), lane('0:' .. kind), lane('1:' .. kind)
  from.out[#from.out + 1] = id
  put(to.due, id, due_text)
  put(to.wake, id, wake)
  if event ~= '' then
    local line = '\n' .. text(version + 1) .. ' ' .. text(now) .. ' ' .. due_text .. ' ' .. due_text .. ' ' .. event
    noted[#noted + 1] = { id, line, '' }
  end
end

if most then
  for _, kind in ipairs(kinds) do
    local count = min(room[kind], most)
    local name, ids = '0:' .. kind, {}
    local due = count > 0 and bytes > 0
      and redis.call('ZRANGEBYSCORE', tag .. ':due:' .. name, '-inf', now, 'WITHSCORES', 'LIMIT', 0, count) or {}
    for at = 1, #due, 2 do
      ids[#ids + 1] = due[at]
    end
    most = most - #ids
    if #ids >= count then
      looked = 1
    end
    for at, head in ipairs(call_for('HMGET', rows, ids)) do
      if spent >= BYTES then
        looked = 1
        break
      elseif claim(ids[at], head, nil, kind, due[2 * at]) then
        for _, said in ipairs({ name, ids[at], due[2 * at], head or '-' }) do
          wrong[#wrong + 1] = said
        end
      end
    end
  end
else
  local ids = {}
  for at = first, #ARGV, 2 do
    ids[#ids + 1] = ARGV[at]
  end
  for at, head in ipairs(call_for('HMGET', rows, ids)) do
    if spent >= BYTES then
      break
    end
    looked = at
    if not head then
      absent[#absent + 1] = ids[at]
    else
      claim(ids[at], head, ARGV[first + 2 * at - 1])
    end
  end
end
if #heads > 0 then
  pass_though_full()
  redis.call('HSET', rows, unpack(heads))
  keep_notes(noted)
  keep_lanes()
end
for at, payload in ipairs(call_for('HMGET', payloads, wanted)) do
  claimed[#claimed + 1], claimed[#claimed + 2], claimed[#claimed + 3] = wanted[at], heads[2 * at], payload or ''
end
return { now, { claimed, wrong, absent, looked } }
