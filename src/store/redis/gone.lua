-- For the scripts that come after it: what must not come back from the epoch before, while it is being carried over.

local gone = tag .. ':gone'

local function row_mark(id)
  return 'row:' .. id
end

local function key_mark(name)
  return 'key:' .. name
end

