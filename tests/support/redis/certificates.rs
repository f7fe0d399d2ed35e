//! Makes certificates of a private authority.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// An authority, and by it a certificate for servers on the loopback and one for clients, as files of a folder.
#[derive(Debug)]
pub(super) struct Certificates {
    folder: PathBuf,
}

impl Certificates {
    pub(super) fn make(folder: PathBuf) -> Self {
        fs::create_dir_all(&folder).expect("a folder");
        let certificates = Self { folder };
        certificates.make_authority();
        // The servers of a cluster are each other's clients.
        certificates.certify(
            "server",
            "subjectAltName=IP:127.0.0.1,DNS:localhost\nextendedKeyUsage=serverAuth,clientAuth\n",
        );
        certificates.certify("client", "extendedKeyUsage=clientAuth\n");
        certificates
    }

    /// The authority's certificate.
    pub(super) fn ca(&self) -> PathBuf {
        self.file("ca.pem")
    }

    /// Certificate and key of `server` or `client`.
    pub(super) fn of(&self, holder: &str) -> (PathBuf, PathBuf) {
        (
            self.file(&format!("{holder}.pem")),
            self.file(&format!("{holder}.key")),
        )
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    fn make_authority(&self) {
        self.request(
            "ca",
            "/CN=delayline test authority",
            &[
                "-x509",
                "-days",
                "3650",
                "-addext",
                "basicConstraints=critical,CA:TRUE",
                "-addext",
                "keyUsage=critical,keyCertSign",
                "-out",
                "ca.pem",
            ],
        );
    }

    fn certify(&self, holder: &str, extensions: &str) {
        let [request, certificate, extensions_file] =
            ["csr", "pem", "ext"].map(|ending| format!("{holder}.{ending}"));
        self.request(holder, "/CN=localhost", &["-out", &request]);
        fs::write(self.file(&extensions_file), extensions).expect("a file");
        openssl(
            &self.folder,
            [
                "x509",
                "-req",
                "-in",
                &request,
                "-CA",
                "ca.pem",
                "-CAkey",
                "ca.key",
                "-CAcreateserial",
                "-days",
                "3650",
                "-out",
                &certificate,
                "-extfile",
                &extensions_file,
            ],
        );
    }

    /// Makes a key, which takes no time on this curve, and a certificate request with it.
    fn request(&self, holder: &str, subject: &str, args: &[&str]) {
        let key = format!("{holder}.key");
        let common = [
            "req",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:prime256v1",
            "-nodes",
            "-subj",
            subject,
            "-keyout",
            &key,
        ];
        openssl(&self.folder, common.iter().chain(args));
    }
}

fn openssl(folder: &Path, args: impl IntoIterator<Item = impl AsRef<OsStr>>) {
    let output = Command::new("openssl")
        .args(args)
        .current_dir(folder)
        .output()
        .expect("this test needs the program openssl");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "openssl: {said}");
}
