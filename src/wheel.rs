//! A hierarchical timing wheel.
