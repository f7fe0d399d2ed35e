-- Lets nothing more come from the epoch before.
--
-- Returns  nothing

redis.call('SET', tag .. ':sealed', 1)
redis.call('UNLINK', tag .. ':gone')
return answer({})
