//! The bare scripts: what is found and moved must be so in one step.

/// Takes up to `ARGV[1]` that are due from `KEYS[1]`, and leases them in `KEYS[2]`.
pub(super) const TAKE: &str = "
    local time = redis.call('TIME')
    local now = time[1] * 1000 + math.floor(time[2] / 1000)
    local ids = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', now, 'LIMIT', 0, ARGV[1])
    if #ids == 0 then return ids end
    redis.call('ZREM', KEYS[1], unpack(ids))
    local leased = {}
    for at, id in ipairs(ids) do
        leased[2 * at - 1] = now + 30000
        leased[2 * at] = id
    end
    redis.call('ZADD', KEYS[2], unpack(leased))
    return ids";

/// The same, with the rows of `KEYS[3]`.
pub(super) const TAKE_ROWS: &str = "
    local time = redis.call('TIME')
    local now = time[1] * 1000 + math.floor(time[2] / 1000)
    local ids = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', now, 'LIMIT', 0, ARGV[1])
    if #ids == 0 then return { ids, ids } end
    redis.call('ZREM', KEYS[1], unpack(ids))
    local leased = {}
    for at, id in ipairs(ids) do
        leased[2 * at - 1] = now + 30000
        leased[2 * at] = id
    end
    redis.call('ZADD', KEYS[2], unpack(leased))
    return { ids, redis.call('HMGET', KEYS[3], unpack(ids)) }";

/// Writes rows: of each its id, time, key and value.
pub(super) const ADD_ROWS: &str = "
    local zadd, values, keys = {}, {}, {}
    for at = 1, #ARGV, 4 do
        zadd[#zadd + 1], zadd[#zadd + 2] = ARGV[at + 1], ARGV[at]
        values[#values + 1], values[#values + 2] = ARGV[at], ARGV[at + 3]
        keys[#keys + 1], keys[#keys + 2] = ARGV[at + 2], ARGV[at]
    end
    redis.call('HSET', KEYS[3], unpack(values))
    redis.call('HSET', KEYS[4], unpack(keys))
    return redis.call('ZADD', KEYS[1], unpack(zadd))";

/// Removes rows from the ZSET `KEYS[1]`, and whatever else there is of them: of each its id and its key.
pub(super) const REMOVE_ROWS: &str = "
    local ids, keys = {}, {}
    for at = 1, #ARGV, 2 do
        ids[#ids + 1] = ARGV[at]
        keys[#keys + 1] = ARGV[at + 1]
    end
    redis.call('HDEL', KEYS[3], unpack(ids))
    redis.call('HDEL', KEYS[4], unpack(keys))
    return redis.call('ZREM', KEYS[1], unpack(ids))";

/// Moves rows: of each its id, time and value.
pub(super) const MOVE_ROWS: &str = "
    local zadd, values = {}, {}
    for at = 1, #ARGV, 3 do
        zadd[#zadd + 1], zadd[#zadd + 2] = ARGV[at + 1], ARGV[at]
        values[#values + 1], values[#values + 2] = ARGV[at], ARGV[at + 2]
    end
    redis.call('HSET', KEYS[3], unpack(values))
    return redis.call('ZADD', KEYS[1], 'XX', 'CH', unpack(zadd))";
