-- Removes rows that are done or cancelled and whose history is over.
--
-- ARGV[4]  whether there is one slot (1 or 0): only then are their keys forgotten here
-- ARGV[5]… of each row: its id
-- Returns  of each row: 1 if it was removed, else 0

local alone = ARGV[4] == '1'
preload_given(5, 1)
local found = {}
for at = 5, #ARGV do
  local id = ARGV[at]
  local row = read(id)
  local is_past = row and (row.state == DONE or row.state == CANCELLED) and row.wake <= now
  if is_past then
    remove(id, row)
    if alone and row.key ~= '' then
      local name = name_of(row.kind, row.key)
      local named = entry(name)
      if named.live == id then
        named.live = nil
      end
      forget(named, id)
      save_entry(name, named)
    end
  end
  found[#found + 1] = is_past and 1 or 0
end
return answer(found)
