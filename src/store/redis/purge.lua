-- Removes rows that are done or cancelled and whose history is over.
--
-- ARGV[4]… of each row: its id
-- Returns  of each row: -1 if it was not removed, else by which try its id pointed here (0: it did not)

preload_given(4, 1)
local names, found = {}, {}
for at = 4, #ARGV do
  local row = read(ARGV[at])
  if row and row.key ~= '' then
    names[#names + 1] = name_of(row.kind, row.key)
  end
end
preload_entries(names)
for at = 4, #ARGV do
  local id = ARGV[at]
  local row = read(id)
  local is_past = row and (row.state == DONE or row.state == CANCELLED) and row.wake <= now
  if is_past then
    remove(id, row)
    if row.key ~= '' then
      forget(name_of(row.kind, row.key), id)
    end
  end
  found[#found + 1] = is_past and row.try or -1
end
return answer(found)
