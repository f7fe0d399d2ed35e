package io.delayline;

/** Says why there is no answer. Where it is no {@link NoAnswerException}, nothing was done. */
public class DelaylineException extends RuntimeException {
    DelaylineException(String message, Throwable cause) {
        super(message, cause);
    }
}
