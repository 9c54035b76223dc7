//! Tags, which links are found by.

use shortlink_core::link::Link;

use super::db::Db;
use super::sql::{Sql, sql, table};
use super::value::Value;

const ADD: Sql = sql!(
    "INSERT INTO link_tags (tag, link_created_at, link_id) SELECT tag, created_at, id FROM ",
    table!("made": 1 "tag" "text", 2 "created_at" "bigint", 3 "id" "bigint")
);

/// Has a link, given by a row as for [`add`], found by a tag no more.
pub(super) const REMOVE: Sql = sql!(
    "DELETE FROM link_tags{| USING unnest($1::text[], $2::bigint[], $3::bigint[]) \
     AS old (tag, created_at, id)} WHERE link_tags.tag = {$1|old.tag} \
     AND link_created_at = {$2|old.created_at} AND link_id = {$3|old.id}"
);

/// Has links, each with its id, found by their tags.
pub(super) async fn add(db: &mut Db<'_>, links: &[(i64, &Link)]) -> Result<(), sqlx::Error> {
    db.run_table(ADD, rows(links).into_iter(), &[]).await?;
    Ok(())
}

/// Has links, as they were before, found by their tags no more.
pub(super) async fn remove(db: &mut Db<'_>, before: &[(i64, &Link)]) -> Result<(), sqlx::Error> {
    db.run_each(REMOVE, rows(before).into_iter(), &[]).await
}

/// The tags of links, each with the creation time and the id of its link.
fn rows<'a>(links: &[(i64, &'a Link)]) -> Vec<[Value<'a>; 3]> {
    let tags = links.iter().flat_map(|(id, link)| {
        let tags = link.tags.iter();
        tags.map(|tag| [tag.into(), link.created_at.into(), (*id).into()])
    });
    tags.collect()
}
