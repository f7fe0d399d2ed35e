package io.delayline;

/** The outcome of a command. */
public enum Outcome {
    /** It is scheduled. */
    NEW,
    /** Another one of this key waits already, and this one was not scheduled. */
    EXISTING,
    /** It is scheduled, in the place of one that waited under this key. */
    REPLACED,
    /** Another one of this key is being carried out, and this one was not scheduled. */
    RUNNING,
    /** It was cancelled, moved, edited or started, as asked. */
    DONE,
    /** It is being carried out right now, and can no longer be changed. */
    TOO_LATE,
    /** It has happened, or was cancelled before: {@link Task#state()} says which. */
    FINISHED,
    /** A command that was sent later came first, so this one does nothing. */
    CONFLICT,
    /** There is nothing under this key. */
    NOT_FOUND,
    /** A cancel that was sent after it came before it, so it was not scheduled. */
    CANCELLED
}
