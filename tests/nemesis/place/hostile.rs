//! Settings of servers that are made for something else: of those that a service's own transactions live with, too.

/// The settings of a server of PostgreSQL.
pub(super) const POSTGRES: [&str; 14] = [
    "default_transaction_isolation = 'repeatable read'",
    "default_transaction_deferrable = on",
    "statement_timeout = '2s'",
    "lock_timeout = '1s'",
    "idle_session_timeout = '1s'",
    "timezone = 'America/St_Johns'",
    "datestyle = 'SQL, DMY'",
    "intervalstyle = iso_8601",
    "standard_conforming_strings = off",
    "transform_null_equals = on",
    "bytea_output = escape",
    "row_security = off",
    "enable_indexscan = off",
    "plan_cache_mode = force_custom_plan",
];

/// By what a server of MariaDB is started.
pub(super) const MARIADB: [&str; 7] = [
    "--autocommit=0",
    "--completion-type=CHAIN",
    "--transaction-isolation=SERIALIZABLE",
    "--default-time-zone=-11:00",
    "--sql-mode=ANSI,NO_BACKSLASH_ESCAPES,PAD_CHAR_TO_FULL_LENGTH",
    "--lock-wait-timeout=1",
    "--init-connect=SET autocommit = 0, completion_type = 1, sql_safe_updates = 1, unique_checks = 0, \
     sql_auto_is_null = 1",
];
