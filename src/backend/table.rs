//! Reads due times ahead from the store's own table.
