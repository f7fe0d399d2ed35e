//! Keeps rows in an SQLite file.
