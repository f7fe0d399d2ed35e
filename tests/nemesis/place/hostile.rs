//! Settings of hostile servers beside those that all have: only ones that a service's own transactions tolerate, too.

/// For a server of PostgreSQL.
pub(super) const POSTGRES: [&str; 3] = [
    "default_transaction_isolation = 'repeatable read'",
    "statement_timeout = '2s'",
    "lock_timeout = '1s'",
];

/// Arguments for a server of MariaDB.
pub(super) const MARIADB: &str = "--init-connect=SET autocommit = 0, completion_type = 1, sql_safe_updates = 1, \
                                  unique_checks = 0, sql_auto_is_null = 1";
