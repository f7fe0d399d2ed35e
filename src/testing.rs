//! What tests of this crate, and of backends and stores written elsewhere, are made of.

pub mod store;

pub use self::store::store_conformance;
