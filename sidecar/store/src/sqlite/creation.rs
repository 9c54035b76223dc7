//! Keeping new links in SQLite, many with one statement.

use std::collections::HashSet;
use std::sync::LazyLock;

use crate::db::{Db, SIZES};
use crate::rows::{Columns, NewLink, values};
use crate::sql::{IN_NUMBERS, Sql, sql};
use crate::targets;
use crate::value::{Value, args};

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

/// Stores the links whose ids are free; returns these ids. Rows are in the order of the ids.
pub(crate) async fn insert(db: &mut Db<'_>, rows: &[NewLink<'_>]) -> Result<Vec<i64>, sqlx::Error> {
    let ids: Vec<i64> = rows.iter().map(|row| row.id).collect();
    // Codes still belong to deleted links. Hardly ever is there any. A row without an id: see `targets`.
    let sql = sql!(
        "SELECT id FROM removed_links WHERE id",
        IN_NUMBERS,
        " UNION ALL SELECT NULL FROM target_fill WHERE $2 AND NOT is_stale"
    );
    let lacks_hash = targets::lack_hash(rows);
    let removed: HashSet<Option<i64>> = db
        .all(sql, args![ids, lacks_hash], |row| row.find("id"))
        .await?;
    if removed.contains(&None) {
        db.run(targets::MARK_STALE, &[]).await?;
    }
    let rows = rows.iter().filter(|row| !removed.contains(&Some(row.id)));
    let mut kept = Vec::new();
    let rows: Vec<(Columns, &NewLink<'_>)> = rows.map(|row| (Columns::of(row.link), row)).collect();
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
