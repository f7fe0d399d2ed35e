//! Whether a schema is the one that this release knows.

/// Whose schema it is, and who makes it.
#[derive(Clone, Debug)]
pub(in crate::store) struct Made {
    pub(in crate::store) table: String,
    /// The database, as its store is called and as the tool calls it.
    pub(in crate::store) store: &'static str,
    pub(in crate::store) tool: &'static str,
    /// How many migrations this release has.
    pub(in crate::store) known: usize,
}

/// Why the table cannot be used.
#[derive(Debug, thiserror::Error)]
pub(in crate::store) enum Unfit {
    #[error(
        "the schema of table {} is not there: call `{}Store::migrate`, run `delayline migrate {}`, or apply what \
         `delayline migrate {} --print` prints",
        .0.table, .0.store, .0.tool, .0.tool
    )]
    Missing(Made),
    #[error(
        "table {} is there, and Delayline has not made it: name another one by `{}Builder::table`, or \
         `delayline migrate {} --table`, or rename what is there",
        .0.table, .0.store, .0.tool
    )]
    Foreign(Made),
    #[error(
        "table {} has schema version {found}, this release needs version {}: call `{}Store::migrate`, or run \
         `delayline migrate {}`",
        .made.table, .made.known, .made.store, .made.tool
    )]
    TooOld { made: Made, found: usize },
    #[error(
        "table {} has schema version {found}, this release knows versions up to {}: use a later release",
        .made.table, .made.known
    )]
    TooNew { made: Made, found: usize },
    #[error("another process has been migrating {} for {within} s", .made.table)]
    #[cfg(feature = "mysql")]
    Busy { made: Made, within: u32 },
}

impl From<Unfit> for sqlx::Error {
    fn from(unfit: Unfit) -> Self {
        Self::Configuration(unfit.into())
    }
}

impl Made {
    /// Fails unless a version is there, and the one that this release knows.
    pub(in crate::store) fn check(self, found: Option<usize>) -> Result<(), Unfit> {
        match found {
            None => Err(Unfit::Missing(self)),
            Some(found) if found < self.known => Err(Unfit::TooOld { made: self, found }),
            Some(found) => self.check_known(found),
        }
    }

    /// Fails if a version is of a later release.
    pub(in crate::store) fn check_known(self, found: usize) -> Result<(), Unfit> {
        match found > self.known {
            true => Err(Unfit::TooNew { made: self, found }),
            false => Ok(()),
        }
    }
}
