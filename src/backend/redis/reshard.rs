//! How far a change of the number of shards has come.

/// How far a change of the number of shards of a [`RedisStore`](crate::store::RedisStore) has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Resharding {
    /// How many rows of tasks were moved so far.
    pub moved: u64,
    /// How many are left in shards that were looked at.
    pub left: u64,
}
