//! Tests rows in Redis servers with faults: exactly what `RedisStore` documents as a possible loss is lost.
//!
//! Verbs may fail while a master is away. Callers repeat them, with the same ids, until they are answered.

mod audit;
mod callers;
mod child;
mod cluster;
mod sentinel;
mod shop;
mod workers;
