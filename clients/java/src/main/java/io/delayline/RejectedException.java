package io.delayline;

/** Says that the server, or RocketMQ, refuses a command as it is, and why; asking again does not help. */
public final class RejectedException extends DelaylineException {
    RejectedException(String reason) {
        super(reason, null);
    }
}
