package io.delayline;

/** Says why there is no answer. Where it is no {@link NoAnswerException}, nothing was done. */
public class DelaylineException extends RuntimeException {
    private static final long serialVersionUID = 1;

    DelaylineException(String message, Throwable cause) {
        super(message, cause);
    }
}
