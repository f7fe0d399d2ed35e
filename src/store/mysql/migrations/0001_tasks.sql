-- One row for each task. Times are milliseconds since 1970-01-01T00:00:00Z. Kind and key are bytes (UTF-8): the
-- collations of text would call some of them equal that are not.
CREATE TABLE IF NOT EXISTS delayline_tasks (
    id           BINARY(16)       NOT NULL,
    kind         VARBINARY(100)   NOT NULL,
    `key`        VARBINARY(255)   NULL,
    state        TINYINT UNSIGNED NOT NULL, -- 0 scheduled, 1 running, 2 done, 3 dead, 4 cancelled
    version      BIGINT UNSIGNED  NOT NULL,
    due_at       BIGINT           NOT NULL,
    planned_at   BIGINT           NOT NULL,
    wake_at      BIGINT           NULL,
    attempt      INT UNSIGNED     NOT NULL,
    started      BOOLEAN          NOT NULL, -- whether the handler of the claim has
    stalls       INT UNSIGNED     NOT NULL,
    max_attempts INT UNSIGNED     NULL,
    hop          INT UNSIGNED     NOT NULL,
    created_at   BIGINT           NOT NULL,
    updated_at   BIGINT           NOT NULL,
    finished_at  BIGINT           NULL,
    owner        LONGTEXT         NULL,
    last_error   LONGTEXT         NULL,
    headers      LONGTEXT         NOT NULL, -- a JSON object
    payload      LONGBLOB         NOT NULL,
    history      MEDIUMTEXT       NOT NULL DEFAULT (''), -- what was noted of transitions, a line each
    -- The key while the task is live, so that at most one live row has it.
    live_key     VARBINARY(255) AS (CASE WHEN state IN (0, 1) THEN `key` END) STORED,
    -- How long the payload is, without reading it.
    size         BIGINT UNSIGNED AS (OCTET_LENGTH(payload)) STORED,
    PRIMARY KEY (id),
    UNIQUE KEY `live` (kind, live_key),
    -- The sweep, and which kinds there are.
    KEY `wake` (state, kind, wake_at),
    -- What is ready, what comes up, and lists.
    KEY `due` (kind, state, due_at, id),
    -- The newest row of a key, also when it is finished.
    KEY `named` (kind, `key`, created_at, id)
) ENGINE = InnoDB DEFAULT CHARACTER SET = utf8mb4 COLLATE = utf8mb4_bin;
