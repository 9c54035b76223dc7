//! Whether a database's schema is the one that this program was built with.

use std::collections::HashMap;

use sqlx::migrate::{MigrateError, Migrator};

/// Why a schema is not the one that this program needs.
#[derive(Debug, thiserror::Error)]
pub enum SchemaError {
    /// Migrations are missing.
    #[error(
        "the database schema is behind ({missing} migrations missing); run `shortlink migrate`"
    )]
    Behind {
        /// How many.
        missing: usize,
    },
    /// A migration was applied that this program does not know.
    #[error("the database schema has migration {version}, which this program does not know")]
    Ahead {
        /// The latest such migration.
        version: i64,
    },
    /// A migration was applied that differs from the one of the same number here, or stopped
    /// halfway.
    #[error("migration {version} of the database is not the one that this program knows")]
    Different {
        /// The migration.
        version: i64,
    },
    /// A migration failed.
    #[error("the database schema can't be brought up to date")]
    Migrate {
        /// Why not.
        #[source]
        source: MigrateError,
    },
    /// The schema can't be read.
    #[error("the database schema can't be read")]
    Read {
        /// Why not.
        #[source]
        source: sqlx::Error,
    },
}

/// Where sqlx notes the migrations that were applied, in any database: the checksum of each by its
/// version, and whether it came to its end.
pub(super) const APPLIED: &str = "SELECT version, checksum, success FROM _sqlx_migrations";

/// A row of [`APPLIED`].
pub(super) type Applied = (i64, Vec<u8>, bool);

/// Whether the migrations that were applied are just those of this program.
pub(super) fn check(migrator: &Migrator, applied: Vec<Applied>) -> Result<(), SchemaError> {
    let applied: HashMap<i64, (Vec<u8>, bool)> = applied
        .into_iter()
        .map(|(version, checksum, success)| (version, (checksum, success)))
        .collect();
    let mut missing = 0;
    for migration in migrator.iter() {
        match applied.get(&migration.version) {
            None => missing += 1,
            Some((checksum, success)) => {
                if !success || checksum != migration.checksum.as_ref() {
                    return Err(SchemaError::Different {
                        version: migration.version,
                    });
                }
            }
        }
    }
    let unknown = applied
        .keys()
        .filter(|&&version| !migrator.version_exists(version));
    if let Some(&version) = unknown.max() {
        return Err(SchemaError::Ahead { version });
    }
    if missing > 0 {
        return Err(SchemaError::Behind { missing });
    }
    Ok(())
}
