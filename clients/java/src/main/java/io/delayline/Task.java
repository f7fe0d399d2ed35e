package io.delayline;

import java.time.Instant;

/** A task as the server shows it: a message or a job that waits, runs or has ended. */
public final class Task {
    private final String json;

    private Task(String json) {
        this.json = json;
    }

    /** Reads the task in this JSON, if there is one. */
    static Task read(String json) {
        return Json.text(json, "id") == null ? null : new Task(json);
    }

    /** Returns its id, which is the property {@code DELAYLINE_ID} of the message that comes out. */
    public String id() {
        return Json.text(json, "id");
    }

    /** Returns its kind: {@code message} for messages of the gateway, unless they name another. */
    public String kind() {
        return Json.text(json, "kind");
    }

    /** Returns the caller's own name for it, or null. */
    public String key() {
        return Json.text(json, "key");
    }

    /** Returns its state: {@code scheduled}, {@code running}, {@code done}, {@code dead} or {@code cancelled}. */
    public String state() {
        return Json.text(json, "state");
    }

    /** Returns when it is due, or was. */
    public Instant dueAt() {
        return Instant.parse(Json.text(json, "due_at"));
    }

    /** Returns the server's JSON, for the JSON library of the service: its payload, attempts and so on. */
    public String json() {
        return json;
    }

    @Override
    public String toString() {
        return kind() + " " + key() + " is " + state() + ", due at " + dueAt();
    }
}
