package io.delayline;

/**
 * Says that no answer came in time, so that it is not known whether the command was carried out. Asking the same
 * {@link Command} again is safe: it has its effect once; over HTTP only if it schedules (see {@link HttpDelayline}).
 */
public final class NoAnswerException extends DelaylineException {
    NoAnswerException(String message, Throwable cause) {
        super(message, cause);
    }
}
