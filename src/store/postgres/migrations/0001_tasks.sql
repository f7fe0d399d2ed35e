-- One row for each task. Times are milliseconds since 1970-01-01T00:00:00Z. Texts compare by their bytes, whatever the
-- collation of the database: in names, "a" and "A" differ, and an index can be walked from kind to kind.
CREATE TABLE {tasks} (
    id           uuid     PRIMARY KEY,
    due_at       bigint   NOT NULL,
    planned_at   bigint   NOT NULL,
    wake_at      bigint,
    version      bigint   NOT NULL CHECK (version >= 0),
    attempt      bigint   NOT NULL CHECK (attempt BETWEEN 0 AND 4294967295),
    started      boolean  NOT NULL, -- whether the handler of the claim has
    stalls       bigint   NOT NULL CHECK (stalls BETWEEN 0 AND 4294967295),
    max_attempts bigint            CHECK (max_attempts BETWEEN 0 AND 4294967295),
    hop          bigint   NOT NULL CHECK (hop BETWEEN 0 AND 4294967295),
    created_at   bigint   NOT NULL,
    updated_at   bigint   NOT NULL,
    finished_at  bigint,
    state        smallint NOT NULL CHECK (state BETWEEN 0 AND 4), -- 0 scheduled, 1 running, 2 done, 3 dead, 4 cancelled
    kind         text     COLLATE "C" NOT NULL,
    key          text     COLLATE "C",
    owner        text     COLLATE "C",
    last_error   text     COLLATE "C",
    headers      text     COLLATE "C" NOT NULL, -- a JSON object
    payload      bytea    NOT NULL,
    history      text     COLLATE "C" NOT NULL DEFAULT '' -- what was noted of transitions, a line each
) WITH (
    -- Every row is written at least three times, soon after one another. With room on its page the next version goes
    -- there too, so that a transition makes one page dirty and not two.
    fillfactor = 70,
    -- A queue turns over its rows all the time while its history grows: the usual fifth of the table would leave the
    -- indexes full of entries that every sweep has to step over.
    autovacuum_vacuum_scale_factor = 0.01,
    autovacuum_vacuum_threshold = 1000,
    autovacuum_analyze_scale_factor = 0.05,
    -- Nor are statistics of use while there are few rows: statements that are prepared then would go on as if it stayed so.
    autovacuum_analyze_threshold = 1000
);

-- The sweep, and which kinds there are.
CREATE INDEX {wake} ON {tasks} (state, kind, wake_at);

-- What is ready, what comes up, and lists.
CREATE INDEX {due} ON {tasks} (kind, state, due_at, id);

-- Who looks for a key says `kind || ''` and `state + 0`, which no other index has. Else the planner takes one of those above
-- where the statistics are of a moment with few live rows, and reads all rows of a kind for each key.

-- At most one live row for each key.
CREATE UNIQUE INDEX {live} ON {tasks} ((kind || ''), key) WHERE state + 0 IN (0, 1) AND key IS NOT NULL;

-- The newest finished row of a key.
CREATE INDEX {key} ON {tasks} ((kind || ''), key, created_at, id) WHERE state + 0 > 1 AND key IS NOT NULL;
