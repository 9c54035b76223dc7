//! Custom codes in lower case: no two differ only by case.

use std::collections::HashMap;

use shortlink_core::boxed;
use shortlink_core::codes::strategy::CodeOrigin;
use shortlink_core::ports::StoreError;
use vocabulary::Code;

use super::Store;
use super::db::Db;
use super::rows::NewLink;
use super::sql::{IN_NUMBERS, IN_TEXTS, Sql, sql, table};
use super::value::{Row, args};

const CLAIM: Sql = sql!(
    "INSERT INTO spellings (folded, link_id) SELECT folded, id FROM ",
    table!("made": 1 "folded" "text", 2 "id" "bigint"),
    // SQLite would read ON as part of a join.
    " WHERE true ON CONFLICT DO NOTHING"
);

/// Releases the spellings of links by their ids.
pub(super) const RELEASE: Sql = sql!("DELETE FROM spellings WHERE link_id", IN_NUMBERS);

impl Store {
    /// Finds the custom code that is a text in lower case, whatever case it has itself.
    #[boxed]
    pub async fn find_spelling(&self, folded: &Code) -> Result<Option<Code>, StoreError> {
        let sql = sql!(
            "SELECT code FROM spellings JOIN links ON links.id = spellings.link_id WHERE folded = $1"
        );
        self.one("find a custom code", sql, args![folded], |row| {
            row.get("code")
        })
        .await
    }
}

/// Claims the spellings of new links that have custom codes; returns the ids of those whose spellings other links have.
/// Imported codes with a character that no issued code has claim theirs, too.
pub(super) async fn claim(db: &mut Db<'_>, rows: &[NewLink<'_>]) -> Result<Vec<i64>, sqlx::Error> {
    let custom = rows.iter().filter(|row| {
        row.link.strategy == Some(CodeOrigin::Custom) || row.link.code.has_separator()
    });
    let folded = custom.map(|row| (row.link.code.to_lower_case(), row.id));
    let mut folded: Vec<(Code, i64)> = folded.collect();
    if folded.is_empty() {
        return Ok(Vec::new());
    }
    // All transactions claim in the same order, as they insert links.
    folded.sort_unstable();
    let values = folded
        .iter()
        .map(|(folded, id)| [folded.into(), (*id).into()]);
    db.run_table(CLAIM, values, &[]).await?;
    let sql = sql!(
        "SELECT folded, link_id FROM spellings WHERE folded",
        IN_TEXTS
    );
    let texts: Vec<&str> = folded.iter().map(|(folded, _)| folded.as_str()).collect();
    let read = |row: &Row| Ok((row.get::<Code>("folded")?, row.get::<i64>("link_id")?));
    let owners: HashMap<Code, i64> = db.all(sql, args![texts], read).await?;
    let others = folded
        .iter()
        .filter(|(folded, id)| owners.get(folded) != Some(id));
    Ok(others.map(|(_, id)| *id).collect())
}
