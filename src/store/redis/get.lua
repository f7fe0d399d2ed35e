-- Gives the row of an id.
--
-- ARGV[4]  id
-- Returns  the row, or nothing

return answer(redis.call('HGET', rows, ARGV[4]))
