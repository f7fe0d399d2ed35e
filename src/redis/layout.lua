-- For the scripts that come after it: how many slots there are, by what is kept in `key`.
--
-- Where nothing is kept, or something older than the caller knows (the server has lost it), what the caller knows is
-- kept from then on; with the slots of the epoch before (`former`) if the caller says so. Returns the epoch, the slots, and
-- the slots of the epoch before while they are being emptied, or 0.
local function layout_of(key, epoch, slots, former)
  local kept = redis.call('HMGET', key, 'epoch', 'slots', 'former')
  if not kept[1] or tonumber(kept[1]) < tonumber(epoch) then
    redis.call('DEL', key)
    redis.call('HSET', key, 'epoch', epoch, 'slots', slots)
    former = tonumber(former or 0)
    if former > 0 then
      redis.call('HSET', key, 'former', former)
    end
    return tonumber(epoch), tonumber(slots), former
  end
  return tonumber(kept[1]), tonumber(kept[2]), tonumber(kept[3] or 0)
end
