//! Holds the account that signs requests.

use std::fmt;

use rocketmq_client_rust::{AclClientRPCHook, SessionCredentials};

use crate::Error;

/// An account, whose secret is never shown.
#[derive(Clone)]
pub(super) struct Credentials {
    access_key: String,
    secret_key: String,
}

impl Credentials {
    pub(super) fn new(access_key: String, secret_key: String) -> Self {
        Self {
            access_key,
            secret_key,
        }
    }

    pub(super) fn check(&self) -> Result<(), Error> {
        for (field, key) in [("access_key", &self.access_key), ("secret_key", &self.secret_key)] {
            if key.is_empty() {
                return Err(Error::invalid(field, "", "it must not be empty"));
            }
        }
        Ok(())
    }

    /// Makes the signer of requests: the secret itself stays here.
    pub(super) fn signer(&self) -> AclClientRPCHook {
        AclClientRPCHook::new(SessionCredentials::with_keys(
            self.access_key.as_str(),
            self.secret_key.as_str(),
        ))
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials")
            .field("access_key", &self.access_key)
            .finish_non_exhaustive()
    }
}
