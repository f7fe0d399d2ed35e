//! Configures accounts and TLS.

use std::fs;
use std::path::{Path, PathBuf};

use super::certificates::Certificates;

/// A user of a server's access control list.
#[derive(Debug)]
pub(super) struct Account {
    pub(super) name: &'static str,
    pub(super) password: &'static str,
}

/// May do everything: for the test itself, and for servers among each other.
pub(super) const ADMIN: Account = Account {
    name: "admin",
    password: "admin-secret",
};

/// The account of the client under test.
pub(super) const USER: Account = Account {
    name: "delayline",
    password: "secret",
};

/// Makes servers speak TLS only, and only with clients that they know.
#[derive(Debug)]
pub(super) struct Security {
    certificates: Certificates,
    users: PathBuf,
    demands_certificates: bool,
}

impl Security {
    /// Writes the files into `folder`: certificates, and a list of users in which [`USER`] may do what `rules` say and
    /// nothing else, and connections without a user may do nothing.
    pub(super) fn make(folder: &Path, rules: &str, demands_certificates: bool) -> Self {
        let users = folder.join("users.acl");
        let list = format!(
            "user default off\n\
             user {} on >{} ~* &* +@all\n\
             user {} on >{} resetkeys resetchannels -@all {rules}\n",
            ADMIN.name, ADMIN.password, USER.name, USER.password
        );
        fs::write(&users, list).expect("a file");
        Self {
            certificates: Certificates::make(folder.join("tls")),
            users,
            demands_certificates,
        }
    }

    pub(super) fn certificates(&self) -> &Certificates {
        &self.certificates
    }

    /// The arguments of a server on `port`.
    pub(super) fn args(&self, port: u16) -> Vec<String> {
        let mut args = self.tls_args(port);
        args.extend(["--aclfile".to_owned(), text(self.users.clone())]);
        args.extend(["--masteruser", ADMIN.name, "--masterauth", ADMIN.password].map(str::to_owned));
        args
    }

    /// The same for a server without accounts.
    pub(super) fn tls_args(&self, port: u16) -> Vec<String> {
        let (certificate, key) = self.certificates.of("server");
        let demands = if self.demands_certificates { "yes" } else { "no" };
        [
            ("--port", "0".to_owned()),
            ("--tls-port", port.to_string()),
            ("--tls-ca-cert-file", text(self.certificates.ca())),
            ("--tls-cert-file", text(certificate)),
            ("--tls-key-file", text(key)),
            ("--tls-auth-clients", demands.to_owned()),
            ("--tls-replication", "yes".to_owned()),
        ]
        .into_iter()
        .flat_map(|(name, value)| [name.to_owned(), value])
        .collect()
    }
}

fn text(path: PathBuf) -> String {
    path.to_str().expect("a path in UTF-8").to_owned()
}
