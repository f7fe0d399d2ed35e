//! `delayline migrate`, on databases that speak TLS, and on such that do not.

use std::path::Path;

use crate::certificates::Certificates;
use crate::database::{Database, Server};
use crate::tool;

const WARNING: &str = "delayline: warning: the database is spoken to in plaintext";

/// What is different about the two: the modes and the authority, as their URLs have them.
struct Words {
    name: &'static str,
    mode: &'static str,
    modes: [&'static str; 4],
    authority: &'static str,
}

const POSTGRES: Words = Words {
    name: "postgres",
    mode: "sslmode",
    modes: ["disable", "prefer", "require", "verify-full"],
    authority: "sslrootcert",
};

const MYSQL: Words = Words {
    name: "mysql",
    mode: "ssl-mode",
    modes: ["DISABLED", "PREFERRED", "REQUIRED", "VERIFY_IDENTITY"],
    authority: "ssl-ca",
};

/// The exit status, and what is said on standard error.
fn ended(words: &Words, arguments: &[&str], url: &str) -> (Option<i32>, String) {
    let mut command = tool(&[&["migrate", words.name], arguments].concat());
    let output = command.args(["--store", url]).output().unwrap();
    (output.status.code(), String::from_utf8(output.stderr).unwrap())
}

fn speaks_tls(database: Database, words: &Words) {
    let folder = tempfile::tempdir().unwrap();
    let [ours, foreign] = ["ours", "foreign"].map(|name| Certificates::make(folder.path().join(name)));
    let (certificate, key) = ours.of("server");
    let server = Server::start_tls(database, &certificate, &key);
    let url = |mode: &str, authority: Option<&Path>| {
        let url = format!("{}?{}={mode}", server.url(), words.mode);
        match authority {
            Some(file) => format!("{url}&{}={}", words.authority, file.display()),
            None => url,
        }
    };
    let well = (Some(0), String::new());
    let [disable, prefer, require, verify] = words.modes;
    let verified = url(verify, Some(&ours.ca()));
    assert_eq!(ended(words, &[], &verified), well);
    assert_eq!(ended(words, &["--check"], &verified), well);
    assert_eq!(ended(words, &["--check"], &url(require, None)), well);
    assert_eq!(ended(words, &["--check"], &url(prefer, None)), well);
    assert_eq!(
        ended(words, &["--check"], &server.url()),
        well,
        "it prefers TLS by itself"
    );
    // There is no warning of what was asked for.
    assert_eq!(ended(words, &["--check"], &url(disable, None)), well);

    for authority in [Some(foreign.ca()), None] {
        let (status, line) = ended(words, &["--check"], &url(verify, authority.as_deref()));
        assert_eq!(status, Some(1), "{line}");
        assert!(line.contains("ertificate") && line.lines().count() == 1, "{line}");
    }
}

fn warns_where_there_is_none(database: Database, words: &Words) {
    let server = Server::start(database);
    let [disable, prefer, require, _] = words.modes;
    let url = |mode: &str| format!("{}?{}={mode}", server.url(), words.mode);
    for url in [server.url(), url(prefer)] {
        let (status, said) = ended(words, &[], &url);
        assert_eq!(status, Some(0), "{said}");
        assert!(said.starts_with(WARNING) && said.contains(require), "{said}");
        assert_eq!(said.lines().count(), 1, "{said}");
    }
    assert_eq!(
        ended(words, &["--check"], &url(disable)),
        (Some(0), String::new())
    );
    let (status, said) = ended(words, &["--check"], &url(require));
    assert_eq!(status, Some(1), "{said}");
}

#[cfg(feature = "postgres")]
#[test]
fn postgres_is_spoken_to_by_tls_and_only_one_that_the_right_authority_vouches_for() {
    speaks_tls(Database::Postgres, &POSTGRES);
}

#[cfg(feature = "mysql")]
#[test]
fn mariadb_is_spoken_to_by_tls_and_only_one_that_the_right_authority_vouches_for() {
    speaks_tls(Database::MariaDb, &MYSQL);
}

#[cfg(feature = "postgres")]
#[test]
fn a_fall_back_to_plaintext_is_told_on_postgres() {
    warns_where_there_is_none(Database::Postgres, &POSTGRES);
}

#[cfg(feature = "mysql")]
#[test]
fn a_fall_back_to_plaintext_is_told_on_mariadb() {
    warns_where_there_is_none(Database::MariaDb, &MYSQL);
}
