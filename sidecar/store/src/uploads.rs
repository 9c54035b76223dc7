//! Uploads, which links are found by.
//!
//! An upload has as many links as a file has rows, so none has an entry of its own: noted are the moments at which an
//! upload has created links, one for each part that was stored together, and the index by age has the links of a moment.

use std::collections::BTreeSet;

use shortlink_core::link::Link;

use super::db::Db;
use super::sql::{Sql, sql, table};

const ADD: Sql = sql!(
    "INSERT INTO upload_moments (upload, link_created_at) SELECT upload, created_at FROM ",
    table!("made": 1 "upload" "bigint", 2 "created_at" "bigint"),
    " WHERE true ON CONFLICT DO NOTHING"
);

/// Has new links found by their uploads.
pub(super) async fn add(
    db: &mut Db<'_>,
    links: impl Iterator<Item = &Link>,
) -> Result<(), sqlx::Error> {
    let mut moments: Vec<(u64, i64)> = Vec::new();
    for link in links {
        let moment = link
            .upload
            .map(|id| (id.get(), link.created_at.as_millisecond()));
        // Nearly always the one of the link before.
        if let Some(moment) = moment
            && moments.last() != Some(&moment)
        {
            moments.push(moment);
        }
    }
    let moments: BTreeSet<(u64, i64)> = moments.into_iter().collect();
    let rows = moments.into_iter();
    let rows = rows.map(|(upload, at)| [upload.cast_signed().into(), at.into()]);
    db.run_table(ADD, rows, &[]).await?;
    Ok(())
}

/// Forgets the moments, each with its upload, of deleted links. A moment with another link of the upload stays.
pub(super) async fn remove(
    db: &mut Db<'_>,
    moments: impl Iterator<Item = (i64, i64)>,
) -> Result<(), sqlx::Error> {
    let moments: BTreeSet<(i64, i64)> = moments.collect();
    let rows = moments.into_iter();
    let rows = rows.map(|(upload, at)| [upload.into(), at.into()]);
    let from = sql!("DELETE FROM upload_moments");
    let key = [
        (sql!("upload"), "bigint"),
        (sql!("link_created_at"), "bigint"),
    ];
    let end = sql!(
        " AND NOT EXISTS (SELECT 1 FROM links \
         WHERE links.created_at = kept.link_created_at AND upload_id = kept.upload)"
    );
    db.delete(from, key, rows, end, |_row| Ok(())).await?;
    Ok(())
}
