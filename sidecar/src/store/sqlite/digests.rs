//! Deduplication: identical requests get the same link.
//!
//! SQLite has one writer, so the data that a transaction reads cannot change before it commits: the
//! first creation for a digest stores the link, and the others find it.

use sqlx::sqlite::SqliteConnection;

use super::links::id_of;
use crate::core::codes::numbering::Numbering;
use crate::core::link::Link;
use crate::core::ports::RequestDigest;
use crate::store::db::Db;
use crate::store::sql::sql;
use crate::store::value::args;

/// Has a digest found as this link; the one before, if any, is dead or another one by now.
pub(in crate::store) async fn note(
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
