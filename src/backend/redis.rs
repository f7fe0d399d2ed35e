//! Carries wake-ups in a Redis ZSET.
