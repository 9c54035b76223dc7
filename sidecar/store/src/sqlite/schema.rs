//! The migrations for SQLite that are part of this program.

use std::sync::LazyLock;

use sqlx::migrate::Migrator;
use sqlx::sqlite::SqliteConnection;

use crate::schema::{self, APPLIED, Applied, SchemaError, migrations};

/// All of them, in order.
pub(super) static MIGRATOR: LazyLock<Migrator> = migrations!("sqlite":
    "0001_links_outbox_api_keys",
    "0002_numbered_links",
    "0003_keys",
    "0004_removed_links",
    "0005_visits",
    "0006_reclassified_visits",
    "0007_old_counts",
    "0008_visits_by_link_id",
    "0009_domain_nodes",
    "0010_changes",
    "0011_days_of_visits",
    "0012_ended_sessions",
    "0013_named_values",
    "0014_unused_agents",
    "0015_uploads",
    "0016_jobs",
    "0017_key_limits",
    "0018_visit_stretches",
    "0019_code_leases",
    "0020_found_links",
    "0021_visit_evidence",
    "0022_sketch_parts",
    "0023_repeated_leases",
    "0024_upload_moments",
    "0025_visit_ids",
    "0026_visit_sink",
    "0027_link_clicks",
    "0028_webhooks",
    "0029_conversions",
    "0030_click_ids",
    "0031_visits_by_network",
    "0032_receipts",
    "0033_sink_server",
    "0034_clicked_visits",
    "0035_spellings",
    "0036_plans",
    "0037_visit_variants",
    "0038_variant_results",
    "0040_link_domains",
    "0041_people",
    "0043_refunds",
    "0044_visit_marks",
    "0045_clicked_messages",
    "0047_search",
    "0048_utm_templates",
    "0049_unchanged_links",
    "0050_domain_brands",
    "0051_visit_minutes",
);

/// Checks that the schema is exactly the one that this program was built with.
pub(super) async fn check(connection: &mut SqliteConnection) -> Result<(), SchemaError> {
    schema::check(&MIGRATOR, applied(connection).await?)
}

/// Applies missing migrations; returns their number.
pub(super) async fn migrate(connection: &mut SqliteConnection) -> Result<usize, SchemaError> {
    let before = applied(connection).await?.len();
    MIGRATOR
        .run(&mut *connection)
        .await
        .map_err(|source| SchemaError::Migrate { source })?;
    Ok(applied(connection).await?.len() - before)
}

async fn applied(connection: &mut SqliteConnection) -> Result<Vec<Applied>, SchemaError> {
    let read = |source| SchemaError::Read { source };
    let table: Option<i64> =
        sqlx::query_scalar("SELECT 1 FROM sqlite_master WHERE name = '_sqlx_migrations'")
            .fetch_optional(&mut *connection)
            .await
            .map_err(read)?;
    if table.is_none() {
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
        schema::assert_is_folder(&MIGRATOR, "sqlite").await;
    }
}
