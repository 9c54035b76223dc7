//! Keeping new links in PostgreSQL, all with one statement.

use std::collections::{HashMap, HashSet};

use jiff::Timestamp;
use shortlink_core::codes::numbering::Numbering;
use shortlink_core::link::Link;
use shortlink_core::ports::{Created, Receipt};
use vocabulary::Code;

use super::codes::uncount;
use super::outbox::{NewRows, enqueue_new, withdraw};
use super::rows::insert;
use super::statements::Statements;
use super::tags;

/// A link, its id, and which of the new links it is.
#[derive(Clone, Copy)]
struct Row<'a> {
    id: i64,
    place: usize,
    link: &'a Link,
}

/// Stores links whose codes are free, within a transaction.
pub(crate) async fn create(
    connection: &mut Statements<'_>,
    links: &[&Link],
    numbering: &Numbering,
) -> Result<Created, sqlx::Error> {
    let codes: Vec<Code> = links.iter().map(|link| link.code).collect();
    let ids = ids_of(connection, numbering, &codes).await?;
    let mut taken = Vec::new();
    let mut seen = HashSet::with_capacity(ids.len());
    let mut rows = Vec::with_capacity(ids.len());
    for (place, (id, link)) in ids.into_iter().zip(links).enumerate() {
        // Of two new links with one code the first gets it.
        if seen.insert(id) {
            rows.push(Row { id, place, link });
        } else {
            taken.push(place);
        }
    }
    // All transactions insert in the order of the ids, so that two with the same codes wait for each
    // other instead of deadlocking.
    rows.sort_unstable_by_key(|row| row.id);
    let ids = rows.iter().map(|row| row.id).collect();
    let mut kept = insert(connection, ids, rows.iter().map(|row| row.link)).await?;
    kept.sort_unstable();
    leave_out(&mut rows, &mut taken, |id| kept.binary_search(&id).is_ok());
    let mut receipt = Receipt::default();
    if let Some(now) = rows.first().map(|row| row.link.updated_at) {
        let tagged = rows.iter().filter(|row| !row.link.tags.is_empty());
        tags::add(connection, tagged.map(|row| (row.id, row.link))).await?;
        let (waiting, removed) = settle(connection, &rows, now).await?;
        receipt = waiting;
        if !removed.is_empty() {
            undo(connection, &rows, &removed, &receipt).await?;
            leave_out(&mut rows, &mut taken, |id| !removed.contains(&id));
            receipt = settle(connection, &rows, now).await?.0;
        }
    }
    taken.sort_unstable();
    Ok(Created { taken, receipt })
}

/// Adds inserted links to the outbox and counts them; returns the ids among them that still belong to
/// deleted links.
async fn settle(
    connection: &mut Statements<'_>,
    rows: &[Row<'_>],
    now: Timestamp,
) -> Result<(Receipt, Vec<i64>), sqlx::Error> {
    let revisions: Vec<(i64, u64)> = rows.iter().map(|row| (row.id, row.link.revision)).collect();
    let links: Vec<(i64, &Link)> = rows.iter().map(|row| (row.id, row.link)).collect();
    let new = NewRows::new(&revisions);
    let removed = enqueue_new(connection, &new, &links, now).await?;
    Ok((new.receipt, removed))
}

/// Removes the rows whose codes are taken.
fn leave_out(rows: &mut Vec<Row<'_>>, taken: &mut Vec<usize>, is_kept: impl Fn(i64) -> bool) {
    rows.retain(|row| {
        let stays = is_kept(row.id);
        if !stays {
            taken.push(row.place);
        }
        stays
    });
}

/// Deletes links that this transaction has inserted, with all that belongs to them.
async fn undo(
    connection: &mut Statements<'_>,
    rows: &[Row<'_>],
    ids: &[i64],
    receipt: &Receipt,
) -> Result<(), sqlx::Error> {
    sqlx::query("DELETE FROM links WHERE id = ANY($1::bigint[])")
        .bind(ids)
        .execute(&mut *connection)
        .await?;
    let removed = rows.iter().filter(|row| ids.contains(&row.id));
    tags::remove(connection, removed.map(|row| (row.id, row.link))).await?;
    withdraw(connection, &receipt.0).await?;
    uncount(connection, rows.iter().map(|row| row.link)).await
}

/// The ids that the links of codes have or would have.
pub(super) async fn ids_of(
    connection: &mut Statements<'_>,
    numbering: &Numbering,
    codes: &[Code],
) -> Result<Vec<i64>, sqlx::Error> {
    let numbers: Vec<Option<i64>> = codes
        .iter()
        .map(|code| numbering.number(code).map(|number| number.get()))
        .collect();
    let mut far: Vec<&str> = codes
        .iter()
        .zip(&numbers)
        .filter(|(_, number)| number.is_none())
        .map(|(code, _)| code.as_str())
        .collect();
    let mut far_ids = HashMap::new();
    if !far.is_empty() {
        far.sort_unstable();
        sqlx::query(
            "INSERT INTO far_codes (code) SELECT * FROM unnest($1::text[]) ON CONFLICT DO NOTHING",
        )
        .bind(&far)
        .execute(&mut *connection)
        .await?;
        let rows: Vec<(String, i64)> =
            sqlx::query_as("SELECT code, id FROM far_codes WHERE code = ANY($1::text[])")
                .bind(&far)
                .fetch_all(connection)
                .await?;
        far_ids.extend(rows);
    }
    codes
        .iter()
        .zip(numbers)
        .map(|(code, number)| match number {
            Some(number) => Ok(number),
            None => far_ids
                .get(code.as_str())
                .map(|id| -id)
                .ok_or(sqlx::Error::RowNotFound),
        })
        .collect()
}
