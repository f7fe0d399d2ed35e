//! Carries wake-ups in this process as a broker with a level table does.
