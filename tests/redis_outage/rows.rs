//! Rows that are in a Redis Cluster to which things happen: what `RedisStore` says that can be lost, and nothing more.
//!
//! Verbs may fail while a master is away. Callers repeat them, with the same ids, until they are answered.

mod audit;
mod callers;
mod child;
mod cluster;
mod shop;
mod workers;
