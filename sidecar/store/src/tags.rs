//! Tags, which links are found by.

use shortlink_core::link::Link;

use super::db::Db;
use super::sql::sql;
use super::value::args;

/// Has a link found by its tags.
pub(super) async fn add(db: &mut Db<'_>, id: i64, link: &Link) -> Result<(), sqlx::Error> {
    let sql = sql!(
        "INSERT INTO link_tags (tag, link_created_at, link_id) \
         SELECT {value|tag}, $2, $3 FROM {json_each($1)|unnest($1::text[]) AS tag}"
    );
    db.run(sql, args![tags_of(link), link.created_at, id])
        .await?;
    Ok(())
}

/// Has a link, as it was before, found by its tags no more.
pub(super) async fn remove(db: &mut Db<'_>, id: i64, before: &Link) -> Result<(), sqlx::Error> {
    let sql = sql!(
        "DELETE FROM link_tags WHERE \
         tag {IN (SELECT value FROM json_each($1))|= ANY($1::text[])} \
         AND link_created_at = $2 AND link_id = $3"
    );
    db.run(sql, args![tags_of(before), before.created_at, id])
        .await?;
    Ok(())
}

fn tags_of(link: &Link) -> Vec<&str> {
    link.tags.iter().map(String::as_str).collect()
}
