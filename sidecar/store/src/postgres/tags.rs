//! Tags in PostgreSQL, where links are found by them.

use shortlink_core::link::Link;

use super::statements::Statements;

/// Has links found by their tags.
pub(super) async fn add<'a>(
    connection: &mut Statements<'_>,
    links: impl IntoIterator<Item = (i64, &'a Link)>,
) -> Result<(), sqlx::Error> {
    let (tags, moments, ids) = columns_of(links);
    if tags.is_empty() {
        return Ok(());
    }
    sqlx::query(
        "INSERT INTO link_tags (tag, link_created_at, link_id) \
         SELECT * FROM unnest($1::text[], $2::bigint[], $3::bigint[])",
    )
    .bind(tags)
    .bind(moments)
    .bind(ids)
    .execute(connection)
    .await?;
    Ok(())
}

/// Has links, as they were before, found by their tags no more.
pub(super) async fn remove<'a>(
    connection: &mut Statements<'_>,
    before: impl IntoIterator<Item = (i64, &'a Link)>,
) -> Result<(), sqlx::Error> {
    let (tags, moments, ids) = columns_of(before);
    if tags.is_empty() {
        return Ok(());
    }
    sqlx::query(
        "DELETE FROM link_tags USING unnest($1::text[], $2::bigint[], $3::bigint[]) \
         AS old (tag, link_created_at, link_id) WHERE link_tags.tag = old.tag \
         AND link_tags.link_created_at = old.link_created_at \
         AND link_tags.link_id = old.link_id",
    )
    .bind(tags)
    .bind(moments)
    .bind(ids)
    .execute(connection)
    .await?;
    Ok(())
}

/// Lists the tags, the creation times of their links, and the links' ids.
fn columns_of<'a>(
    links: impl IntoIterator<Item = (i64, &'a Link)>,
) -> (Vec<&'a str>, Vec<i64>, Vec<i64>) {
    let rows = links.into_iter().flat_map(|(id, link)| {
        let created_at = link.created_at.as_millisecond();
        let tags = link.tags.iter();
        tags.map(move |tag| (tag.as_str(), created_at, id))
    });
    rows.collect()
}
