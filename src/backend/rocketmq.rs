//! Carries wake-ups through the delay levels of RocketMQ.
