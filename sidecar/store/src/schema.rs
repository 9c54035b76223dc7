//! The migrations that are compiled into the program, and whether a database has just these.

use std::collections::HashMap;

use shortlink_core::codes::numbering::CodeKey;
use sqlx::SqlStr;
use sqlx::migrate::{MigrateError, Migration, MigrationType, Migrator};

/// The migrations of a folder below `migrations/`, by the names of its files without `.sql`. sqlx's own macro
/// reads the folder, but needs both database drivers a second time, for the compiler's machine.
macro_rules! migrations {
    ($folder:literal: $($name:literal),+ $(,)?) => {
        std::sync::LazyLock::new(|| crate::schema::migrator(&[
            $((
                $name,
                include_str!(concat!(
                    env!("CARGO_MANIFEST_DIR"), "/../../migrations/", $folder, "/", $name, ".sql"
                )),
            )),+
        ]))
    };
}
pub(super) use migrations;

/// Migrations from the names of their files, `NUMBER_DESCRIPTION`, and their texts.
///
/// # Panics
/// If a name has another form.
pub(super) fn migrator(files: &[(&'static str, &'static str)]) -> Migrator {
    let migration = |&(name, text): &(&str, &'static str)| {
        let (number, description) = name.split_once('_').expect("NUMBER_DESCRIPTION");
        Migration::new(
            number.parse().expect("a number"),
            description.replace('_', " ").into(),
            MigrationType::Simple,
            SqlStr::from_static(text),
            text.starts_with("-- no-transaction"),
        )
    };
    Migrator::with_migrations(files.iter().map(migration).collect())
}

/// Reason for which a schema is not the one that this program needs.
#[derive(Debug, thiserror::Error)]
pub enum SchemaError {
    /// Migrations are missing.
    #[error(
        "the database schema is behind ({missing} migrations missing); run `shortlink migrate`"
    )]
    Behind {
        /// Number of missing migrations.
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
        /// The reason.
        #[source]
        source: MigrateError,
    },
    /// The schema can't be read.
    #[error("the database schema can't be read")]
    Read {
        /// The reason.
        #[source]
        source: sqlx::Error,
    },
}

/// Query of the applied migrations in sqlx' table, for all databases: the version and checksum of each,
/// and whether it was completed.
pub(super) const APPLIED: &str = "SELECT version, checksum, success FROM _sqlx_migrations";

/// Query of the key that codes are numbered by.
pub(super) const CODE_KEY: &str = "SELECT value FROM settings WHERE name = 'code_key'";

/// Reads the value of [`CODE_KEY`].
pub(super) fn code_key(value: Option<Vec<u8>>) -> Option<CodeKey> {
    value?.try_into().ok().map(CodeKey::new)
}

/// A row of [`APPLIED`].
pub(super) type Applied = (i64, Vec<u8>, bool);

/// Checks that the applied migrations are exactly those of this program.
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

/// Databases know migrations by number, description and checksum. Holds those of the program to those that sqlx itself
/// reads from the folder, so that none is left out.
#[cfg(test)]
pub(super) async fn assert_is_folder(compiled: &Migrator, folder: &str) {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../migrations");
    let read = Migrator::new(root.join(folder)).await.expect("migrations");
    let all = |migrator: &Migrator| -> Vec<_> {
        let parts = |it: &Migration| {
            let sql = it.sql.as_str().to_owned();
            let (checksum, description) = (it.checksum.to_vec(), it.description.to_string());
            (it.version, description, checksum, sql, it.no_tx)
        };
        migrator.iter().map(parts).collect()
    };
    assert!(!all(compiled).is_empty());
    assert_eq!(all(compiled), all(&read), "{folder}");
}
