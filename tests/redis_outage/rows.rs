//! Rows that are in Redis servers to which things happen: what `RedisStore` says that can be lost, and nothing more.
//!
//! Verbs may fail while a master is away. Callers repeat them, with the same ids, until they are answered.

mod audit;
mod callers;
mod child;
mod cluster;
mod sentinel;
mod shop;
mod workers;
