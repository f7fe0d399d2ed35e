//! Settings of servers that are meant for another use.

/// For a database or a server of PostgreSQL.
pub(crate) const POSTGRES: [&str; 11] = [
    "default_transaction_deferrable = on",
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

/// Arguments for a server of MariaDB.
pub(crate) const MARIADB: [&str; 6] = [
    "--autocommit=0",
    "--completion-type=CHAIN",
    "--transaction-isolation=SERIALIZABLE",
    "--default-time-zone=-11:00",
    "--sql-mode=ANSI,NO_BACKSLASH_ESCAPES,PAD_CHAR_TO_FULL_LENGTH",
    "--lock-wait-timeout=1",
];
