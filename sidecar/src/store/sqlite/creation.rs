//! Keeping new links in SQLite, many with one statement.

use std::collections::HashSet;
use std::sync::{Arc, LazyLock};

use async_trait::async_trait;
use jiff::Timestamp;
use sqlx::sqlite::SqliteConnection;

use super::codes::count_usage;
use super::links::id_of;
use super::outbox::enqueue;
use super::writer::Write;
use crate::domain::codes::numbering::Numbering;
use crate::domain::link::Link;
use crate::domain::ports::{Created, Receipt};
use crate::store::shared::spans;

/// How many rows a statement inserts. A statement is worth preparing for few sizes only, so links
/// are dealt to the largest that can be filled.
const SIZES: [usize; 5] = [256, 64, 16, 4, 1];

/// The statement for each of the [`SIZES`].
static STATEMENTS: LazyLock<[String; SIZES.len()]> = LazyLock::new(|| {
    SIZES.map(|size| {
        let rows = (0..size).map(|row| {
            let first = row * PARAMETERS + 1;
            let place = |offset: usize| first + offset;
            format!(
                "(?{}, ?{}, ?{}, ?{}, ?{}, ?{}, ?{}, ?{}, ?{}, ?{})",
                place(0),
                place(1),
                place(2),
                place(3),
                place(4),
                place(5),
                place(6),
                place(7),
                place(8),
                place(9),
            )
        });
        let rows: Vec<String> = rows.collect();
        format!(
            "INSERT INTO links (id, code, target, redirect_status, revision, valid_until, \
             revoked_at, created_at, updated_at, created_by) VALUES {}",
            rows.join(", ")
        )
    })
});

/// How many values a row has.
const PARAMETERS: usize = 10;

pub(super) struct CreateLinks {
    pub(super) links: Vec<Link>,
    pub(super) numbering: Arc<Numbering>,
}

#[async_trait]
impl Write for CreateLinks {
    type Output = Created;
    const OPERATION: &'static str = "keep new links";

    async fn apply(&mut self, connection: &mut SqliteConnection) -> Result<Created, sqlx::Error> {
        create(connection, &self.links, &self.numbering).await
    }
}

/// Keeps links whose codes are free, within a transaction.
pub(super) async fn create(
    connection: &mut SqliteConnection,
    links: &[Link],
    numbering: &Numbering,
) -> Result<Created, sqlx::Error> {
    let mut rows = Vec::with_capacity(links.len());
    let mut taken = Vec::new();
    let mut ids = HashSet::with_capacity(links.len());
    for (place, link) in links.iter().enumerate() {
        let id = id_of(connection, numbering, &link.code).await?;
        // Of two new links with one code the first gets it.
        if ids.insert(id) {
            rows.push(Row { id, place, link });
        } else {
            taken.push(place);
        }
    }
    // New rows go to the end of the table, and codes that were issued one after the other share
    // a row of the outbox.
    rows.sort_unstable_by_key(|row| row.id);
    let mut kept = Vec::with_capacity(rows.len());
    let mut rest = &rows[..];
    while !rest.is_empty() {
        let fitting = SIZES.iter().position(|&size| size <= rest.len());
        let which = fitting.unwrap_or(SIZES.len() - 1);
        let (some, others) = rest.split_at(SIZES[which].min(rest.len()));
        rest = others;
        match insert(connection, which, some).await {
            Ok(()) => kept.extend_from_slice(some),
            // SQLite has undone the statement and nothing else.
            Err(error) if is_taken(&error) => {
                for row in some {
                    if exists(connection, row.id).await? {
                        taken.push(row.place);
                    } else {
                        insert(connection, SIZES.len() - 1, std::slice::from_ref(row)).await?;
                        kept.push(*row);
                    }
                }
            }
            Err(error) => return Err(error),
        }
    }
    taken.sort_unstable();
    count_usage(connection, kept.iter().map(|row| row.link)).await?;
    let receipt = Receipt(spans(kept.iter().map(|row| (row.id, row.link.revision))));
    if let Some(row) = kept.first() {
        for &span in &receipt.0 {
            enqueue(connection, span, row.link.updated_at).await?;
        }
    }
    Ok(Created { taken, receipt })
}

/// A link, its id, and which of the new links it is.
#[derive(Clone, Copy)]
struct Row<'a> {
    id: i64,
    place: usize,
    link: &'a Link,
}

/// Inserts as many rows as the statement of a size takes.
async fn insert(
    connection: &mut SqliteConnection,
    which: usize,
    rows: &[Row<'_>],
) -> Result<(), sqlx::Error> {
    let mut query = sqlx::query(STATEMENTS[which].as_str());
    for Row { id, link, .. } in rows {
        query = query
            .bind(id)
            .bind(link.code.as_str())
            .bind(link.target.as_str())
            .bind(link.redirect_status.code())
            .bind(link.revision as i64)
            .bind(link.expires_at.map(|expiry| expiry.moment().as_second()))
            .bind(link.revoked_at.map(Timestamp::as_millisecond))
            .bind(link.created_at.as_millisecond())
            .bind(link.updated_at.as_millisecond())
            .bind(&link.created_by);
    }
    query.execute(connection).await?;
    Ok(())
}

async fn exists(connection: &mut SqliteConnection, id: i64) -> Result<bool, sqlx::Error> {
    let found: Option<i64> = sqlx::query_scalar("SELECT 1 FROM links WHERE id = ?1")
        .bind(id)
        .fetch_optional(connection)
        .await?;
    Ok(found.is_some())
}

fn is_taken(error: &sqlx::Error) -> bool {
    error
        .as_database_error()
        .is_some_and(sqlx::error::DatabaseError::is_unique_violation)
}
