//! Moving links that were stored before they had numbers.

use shortlink_core::link::{Change, Destination, Link};
use shortlink_core::ports::MAX_TOGETHER;
use shortlink_core::target::Target;

use crate::creation::{Creation, create};
use crate::db::Db;
use crate::sql::sql;
use crate::value::{Row, args};

/// Moves some links within a transaction; `false` when there are none left.
pub(super) async fn move_some(db: &mut Db<'_>) -> Result<bool, sqlx::Error> {
    let sql = sql!("SELECT * FROM links_before ORDER BY id LIMIT $1");
    let read = |row: &Row| Ok((row.get("id")?, read(row)?));
    let limit = args![MAX_TOGETHER as u64];
    let found: Vec<(i64, Link)> = db.all(sql, limit, read).await?;
    let (ids, links): (Vec<i64>, Vec<Link>) = found.into_iter().unzip();
    let Some(&last) = ids.last() else {
        return Ok(false);
    };
    // Their codes were unique. Links that are not in Redis yet are published now.
    create(db, &links.iter().collect::<Vec<_>>(), &Creation::default()).await?;
    let sql = sql!("DELETE FROM links_before WHERE id <= $1");
    db.run(sql, args![last]).await?;
    Ok(true)
}

/// Reads a link that has none of the later columns.
fn read(row: &Row) -> Result<Link, sqlx::Error> {
    let target = Destination::Target(Target::from_stored(row.get("target")?));
    let (code, created_by) = (row.get("code")?, row.get("created_by")?);
    let created_at = row.get("created_at")?;
    Ok(Link {
        redirect_status: row.get("redirect_status")?,
        revision: row.get("revision")?,
        valid_until: row.find("expires_at")?,
        revoked_at: row.find("revoked_at")?,
        updated_at: row.get("updated_at")?,
        ..Link::new(code, target, Change::default(), created_by, created_at)
    })
}
