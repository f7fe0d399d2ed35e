-- One row for each task. Times are milliseconds since 1970-01-01T00:00:00Z; the texts and the payload come last, so
-- that looking at the rest of a long row does not read them.
CREATE TABLE delayline_tasks (
    id           BLOB    NOT NULL,
    kind         TEXT    NOT NULL,
    key          TEXT,
    state        INTEGER NOT NULL, -- 0 scheduled, 1 running, 2 done, 3 dead, 4 cancelled
    version      INTEGER NOT NULL,
    due_at       INTEGER NOT NULL,
    planned_at   INTEGER NOT NULL,
    wake_at      INTEGER,
    attempt      INTEGER NOT NULL,
    started      INTEGER NOT NULL, -- 0, or 1 once the handler of the claim has started
    stalls       INTEGER NOT NULL, -- how many claims in a row have ended by their lease
    max_attempts INTEGER,
    hop          INTEGER NOT NULL,
    created_at   INTEGER NOT NULL,
    updated_at   INTEGER NOT NULL,
    finished_at  INTEGER,
    owner        TEXT,
    last_error   TEXT,
    headers      TEXT    NOT NULL, -- a JSON object
    payload      BLOB    NOT NULL,
    history      TEXT    NOT NULL DEFAULT '' -- what was noted of transitions, a line each
);

CREATE UNIQUE INDEX delayline_tasks_id ON delayline_tasks (id);

-- The sweep, and which kinds there are.
CREATE INDEX delayline_tasks_wake ON delayline_tasks (state, kind, wake_at);

-- What is ready, what comes up, and lists.
CREATE INDEX delayline_tasks_due ON delayline_tasks (kind, state, due_at, id);

-- At most one live row for each key.
CREATE UNIQUE INDEX delayline_tasks_live ON delayline_tasks (kind, key)
    WHERE state IN (0, 1) AND key IS NOT NULL;

-- The newest finished row of a key.
CREATE INDEX delayline_tasks_key ON delayline_tasks (kind, key, created_at, id) WHERE state > 1 AND key IS NOT NULL;
