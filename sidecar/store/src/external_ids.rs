//! Finds links by the external ids that their creators gave them. These are not unique.

use crate::db::Db;
use crate::sql::{Sql, sql, table};
use crate::value::{Row, Value};

/// The latest two of the links with an external id, of a campaign if one is given. Only the latest 1,000 with this id are
/// looked at, so that an id that a million links have costs no more. `$4` is true if all links are reached, otherwise
/// those that the keys in `$5` have created.
const LATEST: Sql = sql!(
    "SELECT wanted.place AS place, {(SELECT json_group_array(id) FROM |ARRAY}(SELECT id FROM \
     (SELECT id, campaign_id, created_by, created_at FROM links {INDEXED BY links_by_external_id }\
     WHERE links.external_id = wanted.external_id ORDER BY created_at DESC, id DESC LIMIT 1000) AS latest \
     WHERE (wanted.campaign_id = 0 OR latest.campaign_id = wanted.campaign_id) \
     AND ($4 OR created_by {IN (SELECT value FROM json_each($5))|= ANY($5::text[])}) \
     ORDER BY created_at DESC, id DESC LIMIT 2){)|} AS ids FROM ",
    table!("wanted": 1 "place" "bigint", 2 "external_id" "text", 3 "campaign_id" "bigint")
);

/// An external id whose links are wanted.
pub(crate) struct Wanted<'a> {
    /// The place of the row that has it.
    pub(crate) place: usize,
    pub(crate) id: &'a str,
    /// The campaign of the link, or 0 for any link.
    pub(crate) campaign: i64,
}

/// Finds the latest links with some external ids, at most two of each, the latest first. With `own`, only links that were
/// created with one of these API keys are found. Returns the place of each wanted one with the ids of its links.
pub(crate) async fn find(
    db: &mut Db<'_>,
    wanted: &[Wanted<'_>],
    own: Option<&[String]>,
) -> Result<Vec<(usize, Vec<i64>)>, sqlx::Error> {
    if wanted.is_empty() {
        return Ok(Vec::new());
    }
    let rows = wanted.iter().map(|it| {
        let (place, campaign) = ((it.place as i64).into(), it.campaign.into());
        [place, Value::from(it.id), campaign]
    });
    let mut values = db.table(rows);
    let own_ids: Vec<&str> = own.unwrap_or_default().iter().map(String::as_str).collect();
    values.extend([own.is_none().into(), own_ids.into()]);
    let read = |row: &Row| Ok((row.get::<u64>("place")? as usize, row.get("ids")?));
    db.all(LATEST, &values, read).await
}
