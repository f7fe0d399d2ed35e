//! Suites and helpers for tests of this crate, and of backends and stores written elsewhere.

pub mod backend;
mod faulty;
pub mod store;
pub mod table;

pub use self::faulty::{Faults, FaultyBackend};
pub use self::store::store_conformance;
pub use self::table::table_conformance;
