-- Removes what is left of a slot that is closed and empty: whatever somebody else has put there, and for how long it is
-- still said that it is closed.
--
-- ARGV[4]  for how long that is said from now, in ms
-- Returns  1; or 0 if there are rows or keys, and nothing was done

if redis.call('EXISTS', rows, tag .. ':keys') > 0 then
  return answer(0)
end
for _, lane in ipairs(redis.call('SMEMBERS', tag .. ':lanes')) do
  redis.call('UNLINK', index('due', lane), index('wake', lane))
end
redis.call('UNLINK', tag .. ':lanes', tag .. ':intents', tag .. ':sealed', tag .. ':gone')
redis.call('PEXPIRE', tag .. ':closed', ARGV[4])
return answer(1)
