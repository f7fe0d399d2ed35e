//! What tests of several SQL stores have in common.

#![allow(clippy::unwrap_used)]

pub(in crate::store) mod corrupt;
#[cfg(any(feature = "postgres", feature = "mysql"))]
pub(in crate::store) mod each;
pub(in crate::store) mod forms;
pub(in crate::store) mod lived;
#[cfg(any(feature = "postgres", feature = "mysql"))]
pub(in crate::store) mod locked;
#[cfg(any(feature = "postgres", feature = "sqlite"))]
pub(in crate::store) mod refused;
pub(in crate::store) mod rows;
