//! Keeping new links in PostgreSQL, all with one statement.

use std::collections::{HashMap, HashSet};

use async_trait::async_trait;
use sqlx::postgres::PgConnection;
use vocabulary::Code;

use super::codes::count_usage;
use super::outbox::enqueue;
use super::rows::Rows;
use super::tags;
use super::work::Work;
use crate::domain::codes::numbering::Numbering;
use crate::domain::link::Link;
use crate::domain::ports::{Created, Receipt};
use crate::store::shared::spans;

pub(super) struct CreateLinks<'a> {
    pub(super) links: &'a [Link],
    pub(super) numbering: &'a Numbering,
}

/// A link, its id, and which of the new links it is.
#[derive(Clone, Copy)]
struct Row<'a> {
    id: i64,
    place: usize,
    link: &'a Link,
}

#[async_trait]
impl Work for CreateLinks<'_> {
    type Output = Created;
    const OPERATION: &'static str = "keep new links";

    async fn run(&mut self, connection: &mut PgConnection) -> Result<Created, sqlx::Error> {
        let links: Vec<&Link> = self.links.iter().collect();
        create(connection, &links, self.numbering).await
    }
}

/// Keeps links whose codes are free, within a transaction.
pub(super) async fn create(
    connection: &mut PgConnection,
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
    // Everybody inserts in the order of the ids, so that two who want the same codes wait for
    // each other and don't meet halfway.
    rows.sort_unstable_by_key(|row| row.id);
    let new: Rows<'_> = rows.iter().map(|row| (row.id, row.link)).collect();
    let mut kept = new.insert(connection).await?;
    if kept.len() < rows.len() {
        kept.sort_unstable();
        rows.retain(|row| {
            let is_kept = kept.binary_search(&row.id).is_ok();
            if !is_kept {
                taken.push(row.place);
            }
            is_kept
        });
    }
    taken.sort_unstable();
    let receipt = Receipt(spans(rows.iter().map(|row| (row.id, row.link.revision))));
    if let Some(row) = rows.first() {
        let tagged = rows.iter().filter(|row| !row.link.tags.is_empty());
        tags::add(connection, tagged.map(|row| (row.id, row.link))).await?;
        enqueue(connection, &receipt.0, row.link.updated_at).await?;
        // The last, since all who make links change the same few rows there.
        count_usage(connection, rows.iter().map(|row| row.link)).await?;
    }
    Ok(Created { taken, receipt })
}

/// The ids that the links of codes have or would have.
pub(super) async fn ids_of(
    connection: &mut PgConnection,
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
