-- Reads rows by their ids, and by their keys: of each of these its live row, else the newest.
--
-- ARGV[1]  what is read beside their heads: `payloads`, `notes` or nothing
-- ARGV[2]  how many ids there are
-- ARGV[3]… ids, then names of keys
-- Returns  of each, as far as it was looked for: id, nothing where there is no row, head and the rest

local extra, ids, names = ARGV[1], {}, {}
for at = 3, #ARGV do
  local list = at < 3 + tonumber(ARGV[2]) and ids or names
  list[#list + 1] = ARGV[at]
end
for at, id in ipairs(call_for('HMGET', live, names)) do
  local name, found = names[at], alive(id)
  while not found do
    local entry = redis.call('ZREVRANGEBYLEX', named, '(' .. name .. '\1', '[' .. name .. '\0', 'LIMIT', 0, 1)[1]
    if not entry then
      break
    end
    found = alive(sub(entry, -16))
    if not found then
      -- Of a row that was removed by hand.
      redis.call('ZREM', named, entry)
    end
  end
  ids[#ids + 1] = found or ''
end
local found, wanted, spent = {}, {}, 0
for at, head in ipairs(call_for('HMGET', rows, ids)) do
  if spent >= BYTES then
    break
  end
  wanted[at], spent = ids[at], spent + (head and extra == 'payloads' and size_of(head) or 0)
  found[3 * at - 2], found[3 * at - 1], found[3 * at] = head and ids[at] or '', head or '', ''
end
if extra ~= '' then
  for at, rest in ipairs(call_for('HMGET', tag .. ':' .. extra, wanted)) do
    found[3 * at] = rest or ''
  end
end
return { now, found }
