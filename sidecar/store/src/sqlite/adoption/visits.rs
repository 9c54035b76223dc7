//! Moves rows of visits by code into the tables of visits by ids of links.

use crate::db::Db;
use crate::rows::ids_of;
use crate::sql::{sql, table};
use crate::value::{Row, args};

/// Number of rows that one transaction moves.
pub(super) const TOGETHER: i64 = 10_000;

/// Moves some counts within a transaction; `false` when there are none left.
pub(super) async fn move_some_hours(db: &mut Db<'_>) -> Result<bool, sqlx::Error> {
    let sql = sql!(
        "SELECT code, hour, class, visits, last_at FROM visit_link_hours_before \
         ORDER BY code, hour, class LIMIT $1"
    );
    let read = |row: &Row| {
        let (visits, last_at) = (row.get::<i64>("visits")?, row.get::<i64>("last_at")?);
        let (code, class) = (row.get::<String>("code")?, row.get::<String>("class")?);
        Ok((code, row.get::<i64>("hour")?, class, visits, last_at))
    };
    let rows: Vec<_> = db.all(sql, args![TOGETHER], read).await?;
    if let Some((code, hour, class, ..)) = rows.last() {
        let codes: Vec<&str> = rows.iter().map(|(code, ..)| code.as_str()).collect();
        let ids = ids_of(db, &codes).await?;
        let mut moved: Vec<_> = ids.into_iter().zip(&rows).collect();
        // In the order in which they lie, so that neighbours are inserted together.
        moved.sort_by_key(|(id, _)| *id);
        let moved = moved
            .into_iter()
            .map(|(id, (_, hour, class, visits, last_at))| {
                [
                    id.into(),
                    (*hour).into(),
                    class.into(),
                    (*visits).into(),
                    (*last_at).into(),
                ]
            });
        let insert = sql!(
            "INSERT INTO visit_link_hours (link_id, hour, class, visits, last_at) \
             SELECT id, hour, class, visits, last_at FROM ",
            table!("moved": 1 "id" "bigint", 2 "hour" "bigint", 3 "class" "text",
                4 "visits" "bigint", 5 "last_at" "bigint")
        );
        db.run_table(insert, moved, &[]).await?;
        let delete =
            sql!("DELETE FROM visit_link_hours_before WHERE (code, hour, class) <= ($1, $2, $3)");
        db.run(delete, args![code, *hour, class]).await?;
    }
    Ok(!rows.is_empty())
}

/// Notes of some visits in one transaction which links they are of; `false` when there are none
/// left.
pub(super) async fn move_some(db: &mut Db<'_>) -> Result<bool, sqlx::Error> {
    let sql = sql!(
        "SELECT id, code FROM visits WHERE id > (SELECT max(last_id) FROM visits_before) \
         ORDER BY id LIMIT $1"
    );
    let read = |row: &Row| Ok((row.get::<i64>("id")?, row.get::<String>("code")?));
    let visits: Vec<_> = db.all(sql, args![TOGETHER], read).await?;
    if let Some((last, _)) = visits.last() {
        let codes: Vec<&str> = visits.iter().map(|(_, code)| code.as_str()).collect();
        let known = visits.iter().zip(ids_of(db, &codes).await?);
        let known = known.map(|((visit, _), id)| [(*visit).into(), id.into()]);
        let update = sql!(
            "UPDATE visits SET link_id = known.link FROM ",
            table!("known": 1 "visit" "bigint", 2 "link" "bigint"),
            " WHERE visits.id = known.visit"
        );
        db.run_table(update, known, &[]).await?;
        let sql = sql!("UPDATE visits_before SET last_id = $1");
        db.run(sql, args![*last]).await?;
    }
    Ok(!visits.is_empty())
}
