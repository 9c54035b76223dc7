//! Stores new links in SQLite, many with one statement.

use std::collections::{HashMap, HashSet};
use std::sync::LazyLock;

use shortlink_core::link::Link;

use crate::creation::{Before, Creation};
use crate::db::{Db, SIZES};
use crate::quotas::{self, LIMITS, Limit, Quotas};
use crate::rows::{Columns, NewLink, values};
use crate::sql::{Sql, sql};
use crate::targets;
use crate::value::{Row, Value, args};

/// The statement of some columns for each of the [`SIZES`]; with the hash of the target behind the columns, or without it.
fn statements_of(columns: Columns, has_hash: bool) -> &'static [Sql; SIZES.len()] {
    static STATEMENTS: LazyLock<[[[Sql; SIZES.len()]; 2]; 3]> = LazyLock::new(|| {
        Columns::EACH.map(|columns| [false, true].map(|it| statements(columns, it)))
    });
    &STATEMENTS[columns as usize][usize::from(has_hash)]
}

/// Makes the statements of one kind, once for the process: with many rows a text is long.
fn statements(which: Columns, has_hash: bool) -> [Sql; SIZES.len()] {
    let mut columns = which.names();
    columns.extend(has_hash.then_some("target_hash"));
    SIZES.map(|size| {
        // Without numbers: for a parameter that has one SQLite walks through the names of all.
        let row = format!("(?{})", ", ?".repeat(columns.len()));
        let rows = vec![row; size].join(", ");
        let columns = columns.join(", ");
        let text = format!("INSERT INTO links (id, {columns}) VALUES {rows}");
        Sql::new(text.leak().as_bytes(), &[])
    })
}

/// Reads, with one statement, what is necessary before links are inserted; marks a walk as stale that these links are too
/// late for (see [`targets`]).
pub(crate) async fn look(
    db: &mut Db<'_>,
    links: &[&Link],
    ids: Vec<i64>,
    creation: &Creation,
    has_quotas: bool,
) -> Result<Before, sqlx::Error> {
    let sql = sql!(
        LIMITS,
        " UNION ALL SELECT NULL, NULL, id FROM removed_links WHERE id IN (SELECT value FROM json_each($3)) \
         UNION ALL SELECT NULL, NULL, NULL FROM target_fill WHERE $4 AND NOT is_stale"
    );
    let counted = if has_quotas { links } else { &[] };
    let [keys, campaigns] = quotas::owners(counted.iter().copied());
    let lacks_hash =
        !creation.finds_targets && links.iter().any(|link| link.destination.target().is_some());
    let values = [keys, campaigns, ids[..].into(), lacks_hash.into()];
    let read = |row: &Row| Ok((quotas::limit(row)?, row.find("max_links")?));
    let found: Vec<(Option<Limit>, Option<i64>)> = db.all(sql, &values, read).await?;
    let (mut limits, mut removed) = (HashMap::new(), HashSet::new());
    let mut is_fresh = false;
    for (limit, id) in found {
        match (limit, id) {
            (Some((name, limit)), _) => _ = limits.insert(name, limit),
            (None, Some(id)) => _ = removed.insert(id),
            (None, None) => is_fresh = true,
        }
    }
    if is_fresh {
        db.run(targets::MARK_STALE, &[]).await?;
    }
    Ok(Before {
        ids,
        removed,
        quotas: Quotas::of(db, limits).await?,
        allows_twins: false,
    })
}

/// Stores the links whose ids are free; returns these ids.
pub(crate) async fn insert(db: &mut Db<'_>, rows: &[NewLink<'_>]) -> Result<Vec<i64>, sqlx::Error> {
    let mut kept = Vec::new();
    let rows = rows.iter().map(|row| (Columns::of(row.link), row));
    let rows: Vec<(Columns, &NewLink<'_>)> = rows.collect();
    for columns in Columns::EACH {
        let some = rows.iter().filter(|(needed, _)| *needed == columns);
        let some: Vec<&NewLink<'_>> = some.map(|(_, row)| *row).collect();
        insert_all(db, columns, &some, &mut kept).await?;
    }
    Ok(kept)
}

/// Inserts rows with some columns; notes the ids that were free.
async fn insert_all(
    db: &mut Db<'_>,
    columns: Columns,
    rows: &[&NewLink<'_>],
    kept: &mut Vec<i64>,
) -> Result<(), sqlx::Error> {
    let mut rest = rows;
    while !rest.is_empty() {
        let fitting = SIZES.iter().position(|&size| size <= rest.len());
        let which = fitting.unwrap_or(SIZES.len() - 1);
        let (some, others) = rest.split_at(SIZES[which].min(rest.len()));
        rest = others;
        match insert_some(db, columns, which, some).await {
            Ok(()) => kept.extend(some.iter().map(|row| row.id)),
            // SQLite has undone the statement and nothing else.
            Err(error) if is_taken(&error) => {
                for row in some {
                    let sql = sql!("SELECT 1 FROM links WHERE id = $1");
                    let found: Option<()> = db.one(sql, args![row.id], |_row| Ok(())).await?;
                    if found.is_none() {
                        let one = std::slice::from_ref(row);
                        insert_some(db, columns, SIZES.len() - 1, one).await?;
                        kept.push(row.id);
                    }
                }
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Inserts as many rows as the statement of a size takes.
async fn insert_some(
    db: &mut Db<'_>,
    columns: Columns,
    which: usize,
    rows: &[&NewLink<'_>],
) -> Result<(), sqlx::Error> {
    let mut row_values = Vec::new();
    let has_hash = rows.iter().any(|row| row.target_hash.is_some());
    for NewLink {
        id,
        link,
        target_hash,
        ..
    } in rows
    {
        row_values.push(Value::from(*id));
        row_values.extend(columns.pick(values(link)));
        if has_hash {
            row_values.push((*target_hash).into());
        }
    }
    db.run(statements_of(columns, has_hash)[which], &row_values)
        .await?;
    Ok(())
}

fn is_taken(error: &sqlx::Error) -> bool {
    error
        .as_database_error()
        .is_some_and(sqlx::error::DatabaseError::is_unique_violation)
}
