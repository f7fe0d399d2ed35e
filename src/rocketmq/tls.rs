//! Holds the files of TLS: trusted authorities, and the client's certificate.

use std::fmt;
use std::path::{Path, PathBuf};

use rocketmq_client_rust::ClientConfig;

use crate::Error;

/// The files for TLS; the server's certificate is always checked.
#[derive(Clone)]
pub(super) struct TlsFiles {
    authorities: PathBuf,
    client_certificate: Option<ClientCertificate>,
}

/// The certificate for a server that asks for one.
#[derive(Clone)]
struct ClientCertificate {
    certificate: PathBuf,
    key: PathBuf,
}

impl TlsFiles {
    pub(super) fn new(authorities: PathBuf) -> Self {
        Self {
            authorities,
            client_certificate: None,
        }
    }

    pub(super) fn with_client_certificate(mut self, certificate: PathBuf, key: PathBuf) -> Self {
        self.client_certificate = Some(ClientCertificate { certificate, key });
        self
    }

    /// Reads the files: the client would not say which one cannot be used.
    pub(super) fn check(&self) -> Result<(), Error> {
        check_file(
            "tls authorities",
            &self.authorities,
            "-----BEGIN CERTIFICATE-----",
        )?;
        if let Some(ClientCertificate { certificate, key }) = &self.client_certificate {
            check_file("tls certificate", certificate, "-----BEGIN CERTIFICATE-----")?;
            check_file("tls key", key, "PRIVATE KEY-----")?;
        }
        Ok(())
    }

    pub(super) fn configure(&self, config: &mut ClientConfig) -> Result<(), Error> {
        config.set_use_tls(true);
        config.set_tls_client_auth_server(true);
        config.set_tls_test_mode_enable(false);
        // Otherwise the client reads one of the system's, in which all of this may be switched off.
        config.tls_config.config_file = String::new();
        config.set_tls_client_trust_cert_path(utf8("tls authorities", &self.authorities)?);
        if let Some(ClientCertificate { certificate, key }) = &self.client_certificate {
            config.set_tls_client_cert_path(utf8("tls certificate", certificate)?);
            config.set_tls_client_key_path(utf8("tls key", key)?);
        }
        Ok(())
    }
}

fn check_file(field: &'static str, path: &Path, mark: &str) -> Result<(), Error> {
    let allowed = match std::fs::read(path) {
        Err(cause) => format!("it cannot be read: {cause}"),
        Ok(content) if !String::from_utf8_lossy(&content).contains(mark) => {
            format!("it must be a PEM file, and has no line with {mark}")
        }
        Ok(_) => return Ok(()),
    };
    Err(Error::invalid(field, path.display().to_string(), allowed))
}

fn utf8(field: &'static str, path: &Path) -> Result<String, Error> {
    path.to_str()
        .map(str::to_owned)
        .ok_or_else(|| Error::invalid(field, path.display().to_string(), "the path must be valid UTF-8"))
}

impl fmt::Debug for TlsFiles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsFiles")
            .field("authorities", &self.authorities)
            .field(
                "client_certificate",
                &self.client_certificate.as_ref().map(|files| &files.certificate),
            )
            .finish()
    }
}
