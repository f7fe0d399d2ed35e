package io.delayline;

import java.util.Locale;
import java.util.Optional;

/** Holds the outcome of a command, and the state of its task. */
public final class Answer {
    private final Outcome outcome;
    private final Task task;

    Answer(Outcome outcome, Task task) {
        this.outcome = outcome;
        this.task = task;
    }

    /** Reads an answer in its wire format. */
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

    /** Returns the outcome. */
    public Outcome outcome() {
        return outcome;
    }

    /** Returns whether the command took effect: its task is scheduled, replaced, or done. */
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
