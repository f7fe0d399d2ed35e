//! Warns when a database is spoken to in plaintext though the URL does not ask for that.
//!
//! By default the drivers prefer TLS, and go on without it where the server, or this build, has none. An operator
//! who did not choose that gets a warning.

use std::io::{self, Write as _};

/// Warns if the mode is one that falls back to plaintext, and has done so. What cannot be found out is not told.
#[cfg(feature = "postgres")]
pub(crate) async fn warn_of_postgres(options: &sqlx::postgres::PgConnectOptions) {
    use sqlx::postgres::{PgConnection, PgSslMode};
    use sqlx::{ConnectOptions as _, Connection as _};

    let may_fall_back = matches!(options.get_ssl_mode(), PgSslMode::Prefer | PgSslMode::Allow);
    let is_local = options.get_socket().is_some() || options.get_host().starts_with('/');
    if !may_fall_back || is_local {
        return;
    }
    let asked = async {
        let mut connection: PgConnection = options.connect().await?;
        let asking = sqlx::query_scalar("SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()");
        let is_encrypted: bool = asking.fetch_one(&mut connection).await?;
        connection.close().await?;
        Ok::<_, sqlx::Error>(is_encrypted)
    };
    if matches!(asked.await, Ok(false)) {
        warn(
            "sslmode=require (or verify-full, which also knows the server)",
            "sslmode=disable",
        );
    }
}

/// The same for MySQL and MariaDB.
#[cfg(feature = "mysql")]
pub(crate) async fn warn_of_mysql(options: &sqlx::mysql::MySqlConnectOptions) {
    use sqlx::mysql::{MySqlConnection, MySqlSslMode};
    use sqlx::{ConnectOptions as _, Connection as _};

    let may_fall_back = matches!(options.get_ssl_mode(), MySqlSslMode::Preferred);
    if !may_fall_back || options.get_socket().is_some() {
        return;
    }
    let asked = async {
        let mut connection: MySqlConnection = options.connect().await?;
        let asking = sqlx::query_as("SHOW SESSION STATUS LIKE 'Ssl_cipher'");
        let (_, cipher): (String, String) = asking.fetch_one(&mut connection).await?;
        connection.close().await?;
        Ok::<_, sqlx::Error>(cipher)
    };
    if asked.await.is_ok_and(|cipher| cipher.is_empty()) {
        warn(
            "ssl-mode=REQUIRED (or VERIFY_IDENTITY, which also knows the server)",
            "ssl-mode=DISABLED",
        );
    }
}

fn warn(strict: &str, open: &str) {
    let why = match cfg!(feature = "sql-tls") {
        true => "the server offers no TLS",
        false => "this build has no TLS, which the feature sql-tls brings",
    };
    // If standard error is closed, there is no reader.
    let _ = writeln!(
        io::stderr(),
        "delayline: warning: the database is spoken to in plaintext, as {why}: anyone on the way can read and change \
         all of it; add {strict} to the URL to insist on TLS, or {open} if this is meant"
    );
}
