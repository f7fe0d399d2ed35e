//! Carries wake-ups in this process, to the millisecond.
