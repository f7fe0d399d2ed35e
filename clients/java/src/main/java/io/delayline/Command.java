package io.delayline;

import java.time.Duration;
import java.time.Instant;
import java.time.temporal.ChronoUnit;
import java.util.LinkedHashMap;
import java.util.Locale;
import java.util.Map;
import java.util.Objects;
import java.util.UUID;

/**
 * Describes what to do: schedule a message or task, or change a waiting one.
 *
 * <pre>{@code
 * Command.schedule("order_timeouts", "order-42", body).after(Duration.ofMinutes(15)).tag("cancel").header("source", "shop")
 * }</pre>
 *
 * <p>A command that is repeated after a lost answer is the same command, and has its effect once; over HTTP only if it
 * schedules (see {@link HttpDelayline}). To do the same a second time takes a new one.
 */
public final class Command {
    private enum Action { SCHEDULE, REPLACE, RESCHEDULE, SHIFT, EDIT, CANCEL, RUN }

    private final Action action;
    final String target;
    final String key;
    final byte[] body;
    final Map<String, String> headers = new LinkedHashMap<>();
    /** Identifies it when it is repeated. */
    final String id = UUID.randomUUID().toString();
    /** The id of its message, which it gets with the first send. */
    String messageId;
    String kind;
    String tag;
    /** A duration as the server reads it, with a sign if it is a shift. */
    String after;
    String at;

    private Command(Action action, String target, String key, byte[] body) {
        this.action = action;
        this.target = target;
        this.key = key;
        this.body = body;
    }

    private Command(Action action, String key, byte[] body) {
        this(action, null, Objects.requireNonNull(key, "key is null: allowed is one that something was scheduled by"), body);
    }

    /** Messages need a body; most verbs do not use it. */
    private Command(Action action, String key) {
        this(action, key, new byte[] {'-'});
    }

    /**
     * Schedules a message, or a task; one that waits under the same key stays as it is.
     *
     * @param target the topic that the message goes to (null for messages of a route); over HTTP the kind of the task
     * @param key the caller's own name for it, by which it can be changed; or null
     * @param body the body of the message, 1 byte at least; over HTTP it is JSON
     */
    public static Command schedule(String target, String key, byte[] body) {
        return new Command(Action.SCHEDULE, target, key, body);
    }

    /** Schedules the same in place of the message or task that waits under this key, if there is one. */
    public static Command replace(String target, String key, byte[] body) {
        return new Command(Action.REPLACE, target, key, body);
    }

    /** Cancels the message or task that waits under this key. */
    public static Command cancel(String key) {
        return new Command(Action.CANCEL, key);
    }

    /** Moves the message or task that waits under this key to the time that is set afterwards. */
    public static Command reschedule(String key) {
        return new Command(Action.RESCHEDULE, key);
    }

    /** Moves the message or task that waits under this key by so much; a negative duration makes it earlier. */
    public static Command shift(String key, Duration by) {
        Command shift = new Command(Action.SHIFT, key);
        shift.after = (by.isNegative() ? "-" : "+") + by.abs().toMillis() + "ms";
        return shift;
    }

    /** Gives the message or task that waits under this key another body, and another time, if one is set afterwards. */
    public static Command edit(String key, byte[] body) {
        return new Command(Action.EDIT, key, body);
    }

    /** Runs the message or task that waits under this key now. */
    public static Command runNow(String key) {
        return new Command(Action.RUN, key);
    }

    /** Sets the delay, counted from when the broker or the server takes the command. */
    public Command after(Duration delay) {
        if (delay.isNegative()) {
            throw new IllegalArgumentException("after is " + delay + ": allowed are 0 and more");
        }
        after = delay.toMillis() + "ms";
        return this;
    }

    /** Sets the time; a time that has passed means now. */
    public Command at(Instant time) {
        at = time.truncatedTo(ChronoUnit.MILLIS).toString();
        return this;
    }

    /** Names the kind of the task, if it is not the usual one: one of {@code gateway.kinds}, or, over HTTP, any. */
    public Command kind(String kind) {
        this.kind = kind;
        return this;
    }

    /** Gives the message a tag. */
    public Command tag(String tag) {
        this.tag = tag;
        return this;
    }

    /** Gives the message a user property, or the task a header. */
    public Command header(String name, String value) {
        if (name.startsWith("DELAYLINE_")) {
            throw new IllegalArgumentException("header is \"" + name + "\": allowed are names of your own, not DELAYLINE_…");
        }
        headers.put(name, value);
        return this;
    }

    boolean schedules() {
        return action == Action.SCHEDULE || action == Action.REPLACE;
    }

    /** The action, in its wire format. */
    String verb() {
        return action.name().toLowerCase(Locale.ROOT);
    }

    /** Refuses a command with too few times, or too many: a gateway could only keep it as a dead task. */
    Command checked() {
        int times = (after == null ? 0 : 1) + (at == null ? 0 : 1);
        int most = action == Action.CANCEL || action == Action.RUN ? 0 : 1;
        int least = action == Action.EDIT ? 0 : most;
        if (times < least || times > most) {
            throw new IllegalArgumentException(this + " says after " + after + " and at " + at + ": allowed is "
                    + (most == 0 ? "none" : least == 0 ? "one of both, or none" : "one of both"));
        }
        return this;
    }

    @Override
    public String toString() {
        return verb() + " " + (kind == null ? "" : kind + " ") + key;
    }
}
