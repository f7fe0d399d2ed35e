-- For the scripts that come after it: a look ahead.

-- How many rows one call gives.
local AHEAD = 100

-- Ids and first bytes of scheduled rows that became due up to `since` ms ago or become so within `within` ms, up to
-- `limit` of each kind, kind after kind; when the first one is due that comes later; and where to go on if there are
-- more than one call gives, as `on` takes it: kind, how many of it were given, due time and id of the last one.
local function look_ahead(since, within, limit, on)
  local found, next_due, left = {}, math.huge, AHEAD
  local last = after(within)
  for _, lane in ipairs(lanes_of('0')) do
    local kind, key = string.sub(lane, 3), index('due', lane)
    if not on or on.kind == kind then
      local place, given, score, id
      if on and on.id ~= '' then
        place = place_after(key, on.due, on.id)
      else
        place = redis.call('ZCOUNT', key, '-inf', '(' .. (now - since))
      end
      given, on = on and on.given or 0, nil
      local wanted = math.min(limit - given, left)
      local due = redis.call('ZRANGE', key, place, place + wanted, 'WITHSCORES')
      local ids = {}
      for at = 1, math.min(#due, 2 * wanted), 2 do
        ids[#ids + 1] = tonumber(due[at + 1]) <= last and due[at] or nil
      end
      preload(ids)
      for at = 1, #due, 2 do
        if tonumber(due[at + 1]) > last then
          next_due = math.min(next_due, tonumber(due[at + 1]))
          break
        elseif wanted == 0 then
          next_due = now
          if given < limit then
            return found, next_due, { kind, given, score or '', id or '' }
          end
          break
        end
        id, score = due[at], due[at + 1]
        wanted, given, left = wanted - 1, given + 1, left - 1
        local row = member('due', lane, id, score)
        if row then
          found[#found + 1] = id
          found[#found + 1] = brief(row)
        end
      end
    end
  end
  return found, next_due, {}
end

