//! The schema: the migrations that are part of this program, and whether a file has them all.

use std::collections::HashMap;

use sqlx::migrate::{MigrateError, Migrator};
use sqlx::sqlite::SqliteConnection;

static MIGRATOR: Migrator = sqlx::migrate!("../migrations/sqlite");

/// Why a file's schema is not the one that this program needs.
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

/// Whether the schema is just the one that this program was built with.
pub(super) async fn check(connection: &mut SqliteConnection) -> Result<(), SchemaError> {
    let applied = applied(connection).await?;
    let mut missing = 0;
    for migration in MIGRATOR.iter() {
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
        .filter(|&&version| !MIGRATOR.version_exists(version));
    if let Some(&version) = unknown.max() {
        return Err(SchemaError::Ahead { version });
    }
    if missing > 0 {
        return Err(SchemaError::Behind { missing });
    }
    Ok(())
}

/// Applies what is missing; answers how many migrations that were.
pub(super) async fn migrate(connection: &mut SqliteConnection) -> Result<usize, SchemaError> {
    let before = applied(connection).await?.len();
    MIGRATOR
        .run(&mut *connection)
        .await
        .map_err(|source| SchemaError::Migrate { source })?;
    Ok(applied(connection).await?.len() - before)
}

/// The checksum of each migration that was applied, and whether it came to its end.
async fn applied(
    connection: &mut SqliteConnection,
) -> Result<HashMap<i64, (Vec<u8>, bool)>, SchemaError> {
    let read = |source| SchemaError::Read { source };
    let table: Option<i64> =
        sqlx::query_scalar("SELECT 1 FROM sqlite_master WHERE name = '_sqlx_migrations'")
            .fetch_optional(&mut *connection)
            .await
            .map_err(read)?;
    if table.is_none() {
        return Ok(HashMap::new());
    }
    let rows: Vec<(i64, Vec<u8>, bool)> =
        sqlx::query_as("SELECT version, checksum, success FROM _sqlx_migrations")
            .fetch_all(connection)
            .await
            .map_err(read)?;
    Ok(rows
        .into_iter()
        .map(|(version, checksum, success)| (version, (checksum, success)))
        .collect())
}
