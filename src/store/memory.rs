//! Keeps rows in this process's memory.
