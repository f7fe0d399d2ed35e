//! What tests of this crate, and of backends and stores written elsewhere, are made of.

pub mod backend;
mod faulty;
pub mod store;

pub use self::faulty::{Faults, FaultyBackend};
pub use self::store::store_conformance;
