package io.delayline;

import java.util.Locale;
import java.util.Optional;

/** Tells what came of a command, and how the task is that it was about. */
public final class Answer {
    private final Outcome outcome;
    private final Task task;

    Answer(Outcome outcome, Task task) {
        this.outcome = outcome;
        this.task = task;
    }

    /** Reads an answer as it is on the wire. */
    static Answer read(String json) {
        String word = Json.text(json, "answer");
        if ("rejected".equals(word)) {
            throw new RejectedException(Json.text(json, "error"));
        }
        try {
            return new Answer(Outcome.valueOf(String.valueOf(word).toUpperCase(Locale.ROOT)), Task.read(json));
        } catch (IllegalArgumentException unknown) {
            throw new NoAnswerException("what came is no answer that this release knows: " + json, unknown);
        }
    }

    /** Returns what came of it. */
    public Outcome outcome() {
        return outcome;
    }

    /** Returns whether what was asked for holds: it is scheduled, replaced, or done. */
    public boolean isDone() {
        return outcome == Outcome.NEW || outcome == Outcome.REPLACED || outcome == Outcome.DONE;
    }

    /** Returns the task as it was at that moment, if there is one. */
    public Optional<Task> task() {
        return Optional.ofNullable(task);
    }

    @Override
    public String toString() {
        return outcome + (task == null ? "" : ": " + task);
    }
}
