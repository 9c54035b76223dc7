//! The migrations for PostgreSQL that are part of this program, and the key that codes are
//! numbered by.

use std::sync::LazyLock;

use shortlink_core::codes::numbering::CodeKey;
use sqlx::migrate::Migrator;
use sqlx::postgres::PgConnection;

use super::{OLDEST_VERSION, OpenError};
use crate::schema::{self, APPLIED, Applied, CODE_KEY, SchemaError, migrations};

static MIGRATOR: LazyLock<Migrator> = migrations!("postgres":
    "0001_schema",
    "0002_visits",
    "0003_reclassified_visits",
    "0004_old_counts",
    "0005_domain_nodes",
    "0006_changes",
    "0007_ended_sessions",
    "0008_named_values",
    "0009_unused_agents",
    "0010_uploads",
    "0011_jobs",
    "0012_key_limits",
    "0013_visit_stretches",
    "0014_code_leases",
    "0015_found_links",
    "0016_visit_evidence",
    "0017_sketch_parts",
    "0018_repeated_leases",
    "0019_upload_moments",
    "0020_visit_order",
    "0021_visit_sink",
    "0022_link_clicks",
    "0023_webhooks",
    "0024_conversions",
    "0025_click_ids",
    "0026_visits_by_network",
    "0027_receipts",
    "0028_sink_server",
    "0029_clicked_visits",
    "0030_spellings",
    "0031_plans",
    "0032_visit_variants",
    "0033_variant_results",
    "0035_link_domains",
    "0036_people",
    "0038_refunds",
    "0039_visit_marks",
    "0040_clicked_messages",
    "0042_search",
    "0043_utm_templates",
    "0044_unchanged_links",
    "0045_domain_brands",
    "0046_visit_minutes",
);

/// Advisory lock of the process that migrates the schema: "shortmig".
const LOCK: i64 = 0x7368_6f72_746d_6967;

/// Checks that the server is new enough.
pub(super) async fn check_version(connection: &mut PgConnection) -> Result<(), OpenError> {
    let version: i32 = sqlx::query_scalar("SELECT current_setting('server_version_num')::integer")
        .fetch_one(connection)
        .await
        .map_err(|source| SchemaError::Read { source })?;
    if version < OLDEST_VERSION {
        return Err(OpenError::TooOld { version });
    }
    Ok(())
}

/// Checks that the schema is exactly the one that this program was built with.
pub(super) async fn check(connection: &mut PgConnection) -> Result<(), SchemaError> {
    schema::check(&MIGRATOR, applied(connection).await?)
}

/// Applies missing migrations, and stores a key if there is none; returns the number of applied
/// migrations. The lock ends with the connection.
pub(super) async fn migrate(
    connection: &mut PgConnection,
    new_key: &CodeKey,
) -> Result<usize, SchemaError> {
    let read = |source| SchemaError::Read { source };
    sqlx::query("SELECT pg_advisory_lock($1)")
        .bind(LOCK)
        .execute(&mut *connection)
        .await
        .map_err(read)?;
    let before = applied(connection).await?.len();
    MIGRATOR
        .run(&mut *connection)
        .await
        .map_err(|source| SchemaError::Migrate { source })?;
    // A database that has links and no key has lost it: with another one they would not be found.
    sqlx::query(
        "INSERT INTO settings (name, value) SELECT 'code_key', $1 \
         WHERE NOT EXISTS (SELECT 1 FROM links) ON CONFLICT DO NOTHING",
    )
    .bind(new_key.bytes().as_slice())
    .execute(&mut *connection)
    .await
    .map_err(read)?;
    Ok(applied(connection).await?.len() - before)
}

/// The key that codes are numbered by.
pub(super) async fn code_key(
    connection: &mut PgConnection,
) -> Result<Option<CodeKey>, sqlx::Error> {
    let value = sqlx::query_scalar(CODE_KEY).fetch_optional(connection);
    Ok(schema::code_key(value.await?))
}

async fn applied(connection: &mut PgConnection) -> Result<Vec<Applied>, SchemaError> {
    let read = |source| SchemaError::Read { source };
    let is_there: bool = sqlx::query_scalar("SELECT to_regclass('_sqlx_migrations') IS NOT NULL")
        .fetch_one(&mut *connection)
        .await
        .map_err(read)?;
    if !is_there {
        return Ok(Vec::new());
    }
    sqlx::query_as(APPLIED)
        .fetch_all(connection)
        .await
        .map_err(read)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_migrations_are_those_of_the_folder() {
        schema::assert_is_folder(&MIGRATOR, "postgres").await;
    }
}
