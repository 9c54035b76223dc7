//! Deduplication: identical requests get the same link.
//!
//! SQLite has one writer, so the data that a transaction reads cannot change before it commits: the
//! first creation for a digest stores the link, and the others find it.

use shortlink_core::codes::numbering::Numbering;
use shortlink_core::link::Link;
use shortlink_core::ports::RequestDigest;
use sqlx::sqlite::SqliteConnection;

use super::links::id_of;
use crate::db::Db;
use crate::sql::sql;
use crate::value::args;

/// Has a digest found as this link; the one before, if any, is dead or another one by now.
pub(crate) async fn note(
    connection: &mut SqliteConnection,
    (link, digest): &(Link, RequestDigest),
    numbering: &Numbering,
) -> Result<(), sqlx::Error> {
    let id = id_of(connection, numbering, &link.code).await?;
    let sql = sql!(
        "INSERT INTO link_digests (digest, link_id) VALUES ($1, $2) \
         ON CONFLICT (digest) DO UPDATE SET link_id = excluded.link_id"
    );
    let mut db = Db::Sqlite(connection);
    db.run(sql, args![digest.0.as_slice(), id]).await?;
    Ok(())
}
