-- Looks ahead: the scheduled rows that come next.
--
-- ARGV[4]  how many ms
-- ARGV[5]  from how many ms ago
-- ARGV[6]  up to how many rows of each kind
-- ARGV[7]… where to go on, as the call before has said: kind, how many of it were given, due time and id of the last
-- Returns  an array: ids and first bytes of rows, kind after kind; where to go on, or nothing

local on = ARGV[7] and { kind = ARGV[7], given = tonumber(ARGV[8]), due = ARGV[9], id = ARGV[10] }
local found, _, further = look_ahead(tonumber(ARGV[5]), tonumber(ARGV[4]), tonumber(ARGV[6]), on)
return answer({ found, further })
