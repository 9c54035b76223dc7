//! Tags, by which links are found.

use shortlink_core::link::Link;

use super::db::Db;
use super::sql::{Sql, sql, table};
use super::value::Value;

const ADD: Sql = sql!(
    "INSERT INTO link_tags (tag, link_created_at, link_id) SELECT tag, created_at, id FROM ",
    table!("made": 1 "tag" "text", 2 "created_at" "bigint", 3 "id" "bigint")
);

/// Has links, each with its id, found by their tags.
pub(super) async fn add(db: &mut Db<'_>, links: &[(i64, &Link)]) -> Result<(), sqlx::Error> {
    db.run_table(ADD, rows(links).into_iter(), &[]).await?;
    Ok(())
}

/// Has links, as they were before, found by their tags no more.
pub(super) async fn remove(db: &mut Db<'_>, before: &[(i64, &Link)]) -> Result<(), sqlx::Error> {
    remove_rows(db, rows(before)).await
}

/// Has links found by tags no more, each given by the tag and its creation time and id.
pub(super) async fn remove_rows(
    db: &mut Db<'_>,
    rows: Vec<[Value<'_>; 3]>,
) -> Result<(), sqlx::Error> {
    let from = sql!("DELETE FROM link_tags");
    let key = [
        (sql!("tag"), "text"),
        (sql!("link_created_at"), "bigint"),
        (sql!("link_id"), "bigint"),
    ];
    db.delete(from, key, rows.into_iter(), sql!("")).await
}

/// The tags of links, each with the creation time and the id of its link.
fn rows<'a>(links: &[(i64, &'a Link)]) -> Vec<[Value<'a>; 3]> {
    let tags = links.iter().flat_map(|(id, link)| {
        let tags = link.tags.iter();
        tags.map(|tag| [tag.into(), link.created_at.into(), (*id).into()])
    });
    tags.collect()
}
