//! Keeping new links in SQLite, many with one statement.

use std::collections::HashSet;
use std::sync::LazyLock;

use shortlink_core::codes::numbering::Numbering;
use shortlink_core::link::{Destination, Link};
use shortlink_core::ports::{Created, Receipt};
use sqlx::Arguments as _;
use sqlx::sqlite::{SqliteArguments, SqliteConnection};

use super::codes::count_usage;
use super::links::id_of;
use super::outbox::enqueue;
use crate::db::Db;
use crate::links::{CAMPAIGN, OPTIONAL, TARGET, columns, values};
use crate::shared::spans;
use crate::tags;
use crate::value::Value;

/// Numbers of rows that a statement inserts. Only few sizes are worth a prepared statement, so links
/// go into the largest one that they fill.
const SIZES: [usize; 5] = [256, 64, 16, 4, 1];

/// Columns of an insertion. Every value costs time, even a default, and most links are of the first
/// two kinds.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Columns {
    /// Those of a link with a target of its own that uses nothing else.
    Target,
    /// Those of a link of a campaign that uses nothing else.
    Campaign,
    /// All there are.
    All,
}

impl Columns {
    const EACH: [Self; 3] = [Self::Target, Self::Campaign, Self::All];

    /// The fewest that a link needs.
    fn of(link: &Link) -> Self {
        match &link.destination {
            _ if !values(link)[OPTIONAL].iter().all(Value::is_unused) => Self::All,
            Destination::Target(_) => Self::Target,
            Destination::Campaign { .. } => Self::Campaign,
        }
    }

    /// Returns whether the column at a place among those of links is one of them.
    fn has(self, place: usize) -> bool {
        match self {
            Self::Target => !CAMPAIGN.contains(&place) && !OPTIONAL.contains(&place),
            Self::Campaign => !TARGET.contains(&place) && !OPTIONAL.contains(&place),
            Self::All => true,
        }
    }

    /// The statement for each of the [`SIZES`].
    fn statements(self) -> &'static [String; SIZES.len()] {
        static STATEMENTS: LazyLock<[[String; SIZES.len()]; 3]> =
            LazyLock::new(|| Columns::EACH.map(statements));
        let [target, campaign, all] = &*STATEMENTS;
        match self {
            Self::Target => target,
            Self::Campaign => campaign,
            Self::All => all,
        }
    }
}

fn statements(which: Columns) -> [String; SIZES.len()] {
    let columns = columns!().split(", ").enumerate();
    let columns = columns.filter(|(place, _)| which.has(*place));
    let columns: Vec<&str> = columns.map(|(_, column)| column).collect();
    SIZES.map(|size| {
        // Without numbers: for a parameter that has one SQLite walks through the names of all.
        let row = format!("(?{})", ", ?".repeat(columns.len()));
        let rows = vec![row; size].join(", ");
        let columns = columns.join(", ");
        format!("INSERT INTO links (id, {columns}) VALUES {rows}")
    })
}

/// Stores links whose codes are free, within a transaction.
pub(crate) async fn create(
    connection: &mut SqliteConnection,
    links: &[&Link],
    numbering: &Numbering,
) -> Result<Created, sqlx::Error> {
    let mut rows = Vec::with_capacity(links.len());
    let mut taken = Vec::new();
    let mut ids = HashSet::with_capacity(links.len());
    // Hardly ever is there any, so that looking once for all links is worth it.
    let any_removed: bool = sqlx::query_scalar("SELECT EXISTS (SELECT 1 FROM removed_links)")
        .fetch_one(&mut *connection)
        .await?;
    for (place, link) in links.iter().enumerate() {
        let id = id_of(connection, numbering, &link.code).await?;
        let is_removed = any_removed && is_removed(connection, id).await?;
        // Of two new links with one code the first gets it.
        if ids.insert(id) && !is_removed {
            let columns = Columns::of(link);
            rows.push(Row {
                id,
                place,
                link,
                columns,
            });
        } else {
            taken.push(place);
        }
    }
    // New rows go to the end of the table, and codes that were issued one after the other share
    // a row of the outbox.
    rows.sort_unstable_by_key(|row| row.id);
    let mut kept = Vec::with_capacity(rows.len());
    for columns in Columns::EACH {
        let some: Vec<_> = rows
            .iter()
            .filter(|row| row.columns == columns)
            .copied()
            .collect();
        insert_all(connection, columns, &some, &mut kept, &mut taken).await?;
    }
    kept.sort_unstable_by_key(|row| row.id);
    for row in kept.iter().filter(|row| !row.link.tags.is_empty()) {
        tags::add(&mut Db::Sqlite(connection), row.id, row.link).await?;
    }
    taken.sort_unstable();
    count_usage(connection, kept.iter().map(|row| row.link)).await?;
    let receipt = Receipt(spans(kept.iter().map(|row| (row.id, row.link.revision))));
    if let Some(row) = kept.first() {
        enqueue(connection, &receipt.0, row.link.updated_at).await?;
    }
    Ok(Created { taken, receipt })
}

/// A link, its id, its place among the new links, and the columns that it needs.
#[derive(Clone, Copy)]
struct Row<'a> {
    id: i64,
    place: usize,
    link: &'a Link,
    columns: Columns,
}

/// Inserts rows; those whose ids have rows already are noted as taken.
async fn insert_all<'a>(
    connection: &mut SqliteConnection,
    columns: Columns,
    rows: &[Row<'a>],
    kept: &mut Vec<Row<'a>>,
    taken: &mut Vec<usize>,
) -> Result<(), sqlx::Error> {
    let mut rest = rows;
    while !rest.is_empty() {
        let fitting = SIZES.iter().position(|&size| size <= rest.len());
        let which = fitting.unwrap_or(SIZES.len() - 1);
        let (some, others) = rest.split_at(SIZES[which].min(rest.len()));
        rest = others;
        match insert(connection, columns, which, some).await {
            Ok(()) => kept.extend_from_slice(some),
            // SQLite has undone the statement and nothing else.
            Err(error) if is_taken(&error) => {
                for row in some {
                    if exists(connection, row.id).await? {
                        taken.push(row.place);
                    } else {
                        let one = std::slice::from_ref(row);
                        insert(connection, columns, SIZES.len() - 1, one).await?;
                        kept.push(*row);
                    }
                }
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Inserts as many rows as the statement of a size takes.
async fn insert(
    connection: &mut SqliteConnection,
    columns: Columns,
    which: usize,
    rows: &[Row<'_>],
) -> Result<(), sqlx::Error> {
    let mut arguments = SqliteArguments::default();
    for Row { id, link, .. } in rows {
        arguments.add(*id).map_err(sqlx::Error::Encode)?;
        for (place, value) in values(link).iter().enumerate() {
            if columns.has(place) {
                let added = value.add_to_sqlite(&mut arguments);
                added.map_err(sqlx::Error::Encode)?;
            }
        }
    }
    let statement = columns.statements()[which].as_str();
    sqlx::query_with(statement, arguments)
        .execute(connection)
        .await?;
    Ok(())
}

async fn exists(connection: &mut SqliteConnection, id: i64) -> Result<bool, sqlx::Error> {
    let found: Option<i64> = sqlx::query_scalar("SELECT 1 FROM links WHERE id = ?1")
        .bind(id)
        .fetch_optional(connection)
        .await?;
    Ok(found.is_some())
}

/// Returns whether a code still belongs to a deleted link.
async fn is_removed(connection: &mut SqliteConnection, id: i64) -> Result<bool, sqlx::Error> {
    let found: Option<i64> = sqlx::query_scalar("SELECT 1 FROM removed_links WHERE id = ?1")
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
