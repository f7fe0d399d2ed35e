-- Removes rows that are done or cancelled and whose history is over.
--
-- ARGV[4]  whether there is one slot (1 or 0): only then are their keys forgotten here
-- ARGV[5]  whether rows are being carried over from the epoch before (1 or 0): then these must not come back
-- ARGV[6]… of each row: its id
-- Returns  of each row: 1 if it was removed, else 0

local alone, moving = ARGV[4] == '1', ARGV[5] == '1'
preload_given(6, 1)
local found = {}
for at = 6, #ARGV do
  local id = ARGV[at]
  local row = read(id)
  local is_past = row and (row.state == DONE or row.state == CANCELLED) and row.wake <= now
  if is_past then
    remove(id, row)
    if moving then
      redis.call('SADD', gone, row_mark(id))
    end
    if alone and row.key ~= '' then
      local name = name_of(row.kind, row.key)
      local named = entry(name)
      if named.live == id then
        named.live = nil
      end
      forget(named, id)
      save_entry(name, named)
      if moving and is_forgotten(named) then
        redis.call('SADD', gone, key_mark(name))
      end
    end
  end
  found[#found + 1] = is_past and 1 or 0
end
return answer(found)
