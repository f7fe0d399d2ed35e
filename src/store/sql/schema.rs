//! Says whether a release works on a schema.

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
    /// Fails unless a version is there that this release works on: its own, or the one before, so that the processes of a service
    /// can be replaced one by one, and then the schema.
    pub(in crate::store) fn check(self, found: Option<usize>) -> Result<(), Unfit> {
        match found {
            None => Err(Unfit::Missing(self)),
            Some(found) if found < (self.known - 1).max(1) => Err(Unfit::TooOld { made: self, found }),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_release_works_on_its_own_schema_and_the_one_before() {
        let made = |known| Made {
            table: "t".to_owned(),
            store: "Store",
            tool: "tool",
            known,
        };
        assert!(matches!(made(1).check(None), Err(Unfit::Missing(_))));
        for (found, known) in [(0, 1), (0, 2), (1, 3)] {
            assert!(matches!(
                made(known).check(Some(found)),
                Err(Unfit::TooOld { .. })
            ));
        }
        assert!(made(1).check(Some(1)).is_ok());
        assert!(made(3).check(Some(2)).is_ok());
        assert!(made(3).check(Some(3)).is_ok());
        assert!(matches!(made(3).check(Some(4)), Err(Unfit::TooNew { .. })));
    }
}
