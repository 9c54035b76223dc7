//! Tags, which links are found by.

use shortlink_core::link::Link;

use super::db::Db;
use super::sql::{Sql, sql, table};

const ADD: Sql = sql!(
    "INSERT INTO link_tags (tag, link_created_at, link_id) SELECT tag, created_at, id FROM ",
    table!("made": 1 "tag" "text", 2 "created_at" "bigint", 3 "id" "bigint")
);

const REMOVE: Sql = sql!(
    "DELETE FROM link_tags WHERE (tag, link_created_at, link_id) IN \
     (SELECT tag, created_at, id FROM ",
    table!("old": 1 "tag" "text", 2 "created_at" "bigint", 3 "id" "bigint"),
    ")"
);

/// Has links, each with its id, found by their tags.
pub(super) async fn add(db: &mut Db<'_>, links: &[(i64, &Link)]) -> Result<(), sqlx::Error> {
    run(db, ADD, links).await
}

/// Has links, as they were before, found by their tags no more.
pub(super) async fn remove(db: &mut Db<'_>, before: &[(i64, &Link)]) -> Result<(), sqlx::Error> {
    run(db, REMOVE, before).await
}

async fn run(db: &mut Db<'_>, sql: Sql, links: &[(i64, &Link)]) -> Result<(), sqlx::Error> {
    let tags = links.iter().flat_map(|(id, link)| {
        let tags = link.tags.iter();
        tags.map(|tag| [tag.into(), link.created_at.into(), (*id).into()])
    });
    let tags: Vec<_> = tags.collect();
    db.run_table(sql, tags.into_iter(), &[]).await?;
    Ok(())
}
