package io.delayline;

import java.time.Duration;
import java.time.Instant;

/**
 * Schedules delayed messages and tasks, and moves or cancels them by the caller's own key, with a definite answer.
 *
 * <p>Implementations may be used by any number of threads; a service has one, and closes it when it ends.
 */
public interface Delayline extends AutoCloseable {

    /**
     * Carries out a command, and waits for the answer.
     *
     * @throws NoAnswerException if none came in time: the command may have been carried out or not. The same command may be
     *     asked again, and has its effect once; over HTTP only if it schedules (see {@link HttpDelayline})
     * @throws RejectedException if it cannot be carried out as it is
     * @throws DelaylineException if it could not be sent
     */
    Answer ask(Command command);

    /**
     * Hands a command over, and does not wait for the answer, except over HTTP, where there always is one.
     *
     * @throws DelaylineException if it could not be handed over, or if that is not known
     */
    default void tell(Command command) {
        ask(command);
    }

    /**
     * Schedules a message for a topic, or, over HTTP, a task of a kind, after a delay.
     *
     * @return {@link Outcome#NEW}, or why it was not scheduled
     */
    default Answer schedule(String target, String key, byte[] body, Duration after) {
        return ask(Command.schedule(target, key, body).after(after));
    }

    /** Schedules the same for a time. */
    default Answer schedule(String target, String key, byte[] body, Instant at) {
        return ask(Command.schedule(target, key, body).at(at));
    }

    /** Cancels the message or task that waits under a key. After {@link Outcome#DONE} it does not run. */
    default Answer cancel(String key) {
        return ask(Command.cancel(key));
    }

    /** Moves the message or task that waits under a key to a time. */
    default Answer reschedule(String key, Instant at) {
        return ask(Command.reschedule(key).at(at));
    }

    /** Moves the message or task that waits under a key to a delay from now. */
    default Answer reschedule(String key, Duration after) {
        return ask(Command.reschedule(key).after(after));
    }

    /** Moves the message or task that waits under a key by so much; a negative duration makes it earlier. */
    default Answer shift(String key, Duration by) {
        return ask(Command.shift(key, by));
    }

    /** Gives the message or task that waits under a key another body; its time stays. After {@link Outcome#DONE} it runs with that. */
    default Answer edit(String key, byte[] body) {
        return ask(Command.edit(key, body));
    }

    /** Runs the message or task that waits under a key now. */
    default Answer runNow(String key) {
        return ask(Command.runNow(key));
    }

    /** Closes the connections. Scheduled messages and tasks stay. */
    @Override
    default void close() {
    }
}
