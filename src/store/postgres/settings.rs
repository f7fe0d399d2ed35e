//! What the store's own connections are set to, whatever is set for the server, the database or the user.

use std::fmt::Write;
use std::time::Duration;

use crate::defaults;

/// - Rows are locked and looked at again where they have been changed, which is `READ COMMITTED`; and they are written.
/// - Only indexes are used, one row after another: with the statistics of a table that was small once, the planner would
///   read all of it. A plan is made once for each statement, as no better one depends on the values.
/// - Texts are read as they are meant.
const SETTINGS: &[(&str, &str)] = &[
    ("enable_seqscan", "off"),
    ("enable_bitmapscan", "off"),
    ("enable_hashjoin", "off"),
    ("enable_mergejoin", "off"),
    ("enable_indexscan", "on"),
    ("enable_indexonlyscan", "on"),
    ("enable_nestloop", "on"),
    ("enable_sort", "on"),
    ("from_collapse_limit", "8"),
    ("join_collapse_limit", "8"),
    ("jit", "off"),
    ("plan_cache_mode", "force_generic_plan"),
    ("standard_conforming_strings", "on"),
    ("transform_null_equals", "off"),
    ("row_security", "on"),
];

/// Those of a session alone. Connections whose other end has vanished are given up.
const OF_SESSION: &[(&str, &str)] = &[
    ("default_transaction_isolation", "'read committed'"),
    ("default_transaction_read_only", "off"),
    ("default_transaction_deferrable", "off"),
    ("tcp_keepalives_idle", "10"),
    ("tcp_keepalives_interval", "5"),
    ("tcp_keepalives_count", "3"),
];

/// Those that older servers do not have: a caller that goes away closes its connection, which is noticed within half a
/// second from PostgreSQL 14 on.
const LATER: &[(&str, &str)] = &[
    ("client_connection_check_interval", "500"),
    ("idle_session_timeout", "0"),
    ("transaction_timeout", "0"),
];

/// Sets a session for as long as it lasts.
pub(super) fn of_session(lock_timeout: Duration) -> String {
    let mut text = limits("SET", lock_timeout);
    let limit = defaults::STORE_TIMEOUT.as_millis();
    let _ = write!(text, "SET tcp_user_timeout = {limit};");
    for (name, value) in OF_SESSION {
        let _ = write!(text, "SET {name} = {value};");
    }
    text + &rest("SET", false)
}

/// Begins a transaction, and sets what it needs until it ends: for who shares the session with others.
pub(super) fn of_transaction(lock_timeout: Duration) -> String {
    let begin = "BEGIN ISOLATION LEVEL READ COMMITTED, READ WRITE;";
    begin.to_owned() + &limits("SET LOCAL", lock_timeout) + &rest("SET LOCAL", true)
}

/// How long anything may take: first, as those that are set already may be shorter than what follows.
fn limits(set: &str, lock_timeout: Duration) -> String {
    let limit = defaults::STORE_TIMEOUT.as_millis();
    format!(
        "{set} statement_timeout = {limit}; {set} lock_timeout = {};
         {set} idle_in_transaction_session_timeout = {limit};",
        lock_timeout.as_millis()
    )
}

/// What a call has written is durable when it returns: `local`, `remote_write` and `remote_apply` may be meant.
fn rest(set: &str, is_local: bool) -> String {
    let mut text = format!(
        "SELECT set_config('synchronous_commit', 'on', {is_local})
         WHERE current_setting('synchronous_commit') = 'off';"
    );
    for (name, value) in SETTINGS {
        let _ = write!(text, "{set} {name} = {value};");
    }
    for (name, value) in LATER {
        let _ = write!(
            text,
            "SELECT set_config(name, '{value}', {is_local}) FROM pg_settings WHERE name = '{name}';"
        );
    }
    text
}
