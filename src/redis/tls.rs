//! Reads the certificates for TLS: trusted authorities, and the client's own.

use std::error::Error as _;
use std::path::PathBuf;
use std::sync::{Arc, Once};
use std::{fs, io};

use redis::{ClientTlsConfig, RedisError, TlsCertificates};
use rustls::AlertDescription;
use rustls::crypto::{CryptoProvider, aws_lc_rs};

use crate::Error;

/// The certificates of `rediss` URLs; the server's certificate is always checked.
#[derive(Clone)]
pub(super) struct Tls {
    certificates: TlsCertificates,
}

impl Tls {
    /// Reads the files that a URL's query names: `ca`, authorities to trust instead of the system's; `cert` and `key`,
    /// for a server that asks for a client certificate. All are in PEM.
    pub(super) fn read(files: Vec<(&str, PathBuf)>, refused: impl Fn() -> Error) -> Result<Self, Error> {
        let (mut authorities, mut certificate, mut key) = (None, None, None);
        for (name, file) in files {
            let (place, field, begins) = match name {
                "ca" => (&mut authorities, "redis url ca", "-----BEGIN CERTIFICATE-----"),
                "cert" => (&mut certificate, "redis url cert", "-----BEGIN CERTIFICATE-----"),
                "key" => (&mut key, "redis url key", "PRIVATE KEY-----"),
                _ => return Err(refused()),
            };
            *place = Some(read(field, &file, begins)?);
        }
        let client_tls = match (certificate, key) {
            (Some(client_cert), Some(client_key)) => Some(ClientTlsConfig {
                client_cert,
                client_key,
            }),
            (None, None) => None,
            // One is of no use without the other.
            _ => return Err(refused()),
        };
        choose_cryptography();
        Ok(Self {
            certificates: TlsCertificates {
                client_tls,
                root_cert: authorities,
            },
        })
    }

    pub(super) fn certificates(&self) -> TlsCertificates {
        self.certificates.clone()
    }
}

fn read(field: &'static str, file: &PathBuf, begins: &str) -> Result<Vec<u8>, Error> {
    let refused = |why: &dyn std::fmt::Display| {
        Error::invalid(field, file.display(), format!("allowed is a file in PEM: {why}"))
    };
    let bytes = fs::read(file).map_err(|error| refused(&error))?;
    let has = String::from_utf8_lossy(&bytes).contains(begins);
    has.then_some(bytes)
        .ok_or_else(|| refused(&format!("it has no {begins:?}")))
}

/// Says whether one side does not trust the other's certificate.
pub(super) fn is_refused(error: &RedisError) -> bool {
    type Shared = Arc<dyn std::error::Error + Send + Sync>;
    use AlertDescription::{
        AccessDenied, BadCertificate, CertificateExpired, CertificateRequired, CertificateRevoked,
        CertificateUnknown, UnknownCA, UnsupportedCertificate,
    };
    // The client keeps the error that it was given in an `Arc`, which is an error by itself.
    let shared = error.source().and_then(|source| source.downcast_ref::<Shared>());
    let io = shared.and_then(|shared| shared.downcast_ref::<io::Error>());
    let tls = io.and_then(|io| io.get_ref()?.downcast_ref::<rustls::Error>());
    match tls {
        Some(rustls::Error::InvalidCertificate(_)) => true,
        Some(rustls::Error::AlertReceived(alert)) => matches!(
            alert,
            AccessDenied
                | BadCertificate
                | CertificateExpired
                | CertificateRequired
                | CertificateRevoked
                | CertificateUnknown
                | UnknownCA
                | UnsupportedCertificate
        ),
        _ => false,
    }
}

/// Chooses a provider of cryptography: the client uses the process's choice, and panics where several are compiled in
/// and none was chosen.
fn choose_cryptography() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        if CryptoProvider::get_default().is_none() {
            // Refused only if another thread chose at this moment, which will do as well.
            let _chosen = aws_lc_rs::default_provider().install_default();
        }
    });
}
