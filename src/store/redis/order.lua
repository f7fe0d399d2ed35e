-- For the scripts that come after it: the order of ids.

-- Whether one id comes after another: by their bytes, as `<` would go by the server's language.
local function is_after(one, other)
  for at = 1, 16 do
    local a, b = string.byte(one, at), string.byte(other, at)
    if a ~= b then
      return (a or 0) > (b or 0)
    end
  end
  return false
end

