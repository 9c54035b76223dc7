//! The audit log. The operations write its entries in their own transactions.

use shortlink_core::audit::{AuditEntry, StoredAuditEntry};
use shortlink_core::boxed;
use shortlink_core::ports::{AuditListing, Listed, MOST_EXAMINED, StoreError};

use super::Store;
use super::db::{Db, Statement};
use super::sql::{Sql, sql};
use super::value::{Row, args, invalid, is_storable};

impl Store {
    /// Lists entries of the audit log, the latest first.
    #[boxed]
    pub async fn list_audit(
        &self,
        listing: &AuditListing,
    ) -> Result<Listed<StoredAuditEntry>, StoreError> {
        let mut texts = conditions(listing);
        if !texts.all(|(_, text)| is_storable(text)) {
            return Ok(Listed::default());
        }
        self.read("read the audit log", listing, |db, listing| {
            Box::pin(list(db, listing, MOST_EXAMINED))
        })
        .await
    }
}

/// A column that entries are found by, with its comparison and the table with its index.
type Condition = (Sql, Sql);

/// The conditions of a listing. The first one leads: few entries are about the same subject.
fn conditions(listing: &AuditListing) -> impl Iterator<Item = (Condition, &str)> {
    let all = [
        (
            sql!("subject = "),
            sql!("audit_log {INDEXED BY audit_log_by_subject }WHERE "),
            &listing.subject,
        ),
        (
            sql!("key_id = "),
            sql!("audit_log {INDEXED BY audit_log_by_key }WHERE "),
            &listing.key_id,
        ),
        (
            sql!("action = "),
            sql!("audit_log {INDEXED BY audit_log_by_action }WHERE "),
            &listing.action,
        ),
    ];
    all.into_iter()
        .filter_map(|(column, table, text)| Some(((column, table), text.as_deref()?)))
}

/// With one condition, each entry that its index has matches. With several, the walk along the index of the first one
/// ends after `most` entries; the next page continues there.
async fn list(
    db: &mut Db<'_>,
    listing: &AuditListing,
    most: u32,
) -> Result<Listed<StoredAuditEntry>, sqlx::Error> {
    let mut reach = None;
    if conditions(listing).count() > 1 {
        let statement = reach_of(db.statement(sql!("SELECT id FROM ")), listing, most);
        let read = |row: &Row| row.get("id");
        reach = db.one(&statement, &statement.values, read).await?;
    }
    let statement = db.statement(sql!("SELECT id, at, key_id, action, subject, detail FROM "));
    let statement = select(statement, listing, reach);
    let entries = db.all(&statement, &statement.values, read).await?;
    Ok(Listed::new(entries, listing.limit, reach))
}

/// Completes the statement for the id of the entry of the number `most`.
fn reach_of<'a>(
    mut statement: Statement<'a>,
    listing: &'a AuditListing,
    most: u32,
) -> Statement<'a> {
    push(&mut statement, listing, conditions(listing).take(1));
    statement.push(sql!(" ORDER BY id DESC LIMIT 1 OFFSET "));
    statement.bind(most.saturating_sub(1));
    statement
}

/// Completes the statement for the entries from `reach` on.
fn select<'a>(
    mut statement: Statement<'a>,
    listing: &'a AuditListing,
    reach: Option<i64>,
) -> Statement<'a> {
    push(&mut statement, listing, conditions(listing));
    if let Some(reach) = reach {
        statement.push(sql!(" AND id >= ")).bind(reach);
    }
    statement.push(sql!(" ORDER BY id DESC LIMIT "));
    statement.bind(listing.limit);
    statement
}

/// Adds the table, the position of a listing, and conditions, of which the first one leads.
fn push<'a>(
    statement: &mut Statement<'a>,
    listing: &AuditListing,
    conditions: impl Iterator<Item = (Condition, &'a str)>,
) {
    let mut conditions = conditions.peekable();
    let table = conditions.peek().map(|((_, table), _)| *table);
    statement.push(table.unwrap_or(sql!("audit_log WHERE ")));
    for ((column, _), text) in conditions {
        statement.push(column).bind(text).push(sql!(" AND "));
    }
    statement
        .push(sql!("id < "))
        .bind(listing.before.unwrap_or(i64::MAX));
}

/// Adds an entry for a change, in the transaction of the change.
pub(super) async fn append(db: &mut Db<'_>, entry: &AuditEntry) -> Result<(), sqlx::Error> {
    let detail = serde_json::to_string(&entry.detail);
    let detail = detail.map_err(|error| sqlx::Error::Encode(Box::new(error)))?;
    let sql = sql!(
        "INSERT INTO audit_log (at, key_id, action, subject, detail) VALUES ($1, $2, $3, $4, $5)"
    );
    let (action, subject) = (entry.action.name(), entry.subject.to_string());
    db.run(sql, args![entry.at, &entry.key_id, action, subject, detail])
        .await?;
    Ok(())
}

fn read(row: &Row) -> Result<StoredAuditEntry, sqlx::Error> {
    let detail = serde_json::from_str(row.get("detail")?);
    Ok(StoredAuditEntry {
        id: row.get("id")?,
        at: row.get("at")?,
        key_id: row.find("key_id")?,
        action: row.get("action")?,
        subject: row.get("subject")?,
        detail: detail.map_err(|_error| invalid("detail"))?,
    })
}

#[cfg(test)]
mod tests {
    use shortlink_core::audit::{Action, Subject};
    use shortlink_core::testing::moment;

    use super::*;
    use crate::testing::{Fixture, NOW, code};
    use crate::{Scheme, in_every_store};

    in_every_store! {
        pages_of_several_conditions_have_every_entry_once_and_end_after_so_many,
    }

    async fn page(store: &Store, listing: &AuditListing) -> Listed<StoredAuditEntry> {
        let page = store.read("read the audit log", listing, |db, listing| {
            Box::pin(list(db, listing, 10))
        });
        page.await.expect("a working store")
    }

    async fn pages_of_several_conditions_have_every_entry_once_and_end_after_so_many(
        fixture: Fixture,
    ) {
        let entries: Vec<AuditEntry> = (0..100)
            .map(|n| AuditEntry {
                at: moment(NOW),
                key_id: Some(if n % 2 == 0 { "even" } else { "odd" }.to_owned()),
                action: if n % 25 == 0 {
                    Action::LinkRevoke
                } else {
                    Action::LinkChange
                },
                subject: Subject::Link(code("abc")),
                detail: serde_json::Map::new(),
            })
            .collect();
        let done = fixture.store.run_tx("note", entries, |db, entries| {
            Box::pin(async move {
                for entry in entries {
                    append(db, entry).await?;
                }
                Ok(())
            })
        });
        done.await.expect("a working store");
        for (key_id, action, expected, most_pages) in [
            (Some("even"), Some("link.revoke"), 2, 6),
            (Some("odd"), Some("key.create"), 0, 6),
            (Some("nobody"), Some("link.revoke"), 0, 1),
            (Some("even"), None, 50, 3),
        ] {
            let mut listing = AuditListing {
                key_id: key_id.map(str::to_owned),
                action: action.map(str::to_owned),
                limit: 20,
                ..AuditListing::default()
            };
            let (mut found, mut pages) = (Vec::new(), 0);
            loop {
                let Listed { items, read_to } = page(&fixture.store, &listing).await;
                pages += 1;
                let is_full = items.len() == 20;
                listing.before = if is_full {
                    items.last().map(|it| it.id)
                } else {
                    read_to
                };
                found.extend(items.into_iter().map(|it| it.id));
                if listing.before.is_none() {
                    break;
                }
            }
            assert_eq!(found.len(), expected, "{listing:?}");
            assert!(found.is_sorted_by(|one, next| one > next), "{found:?}");
            assert!(pages <= most_pages, "{pages}: {listing:?}");
        }
    }

    #[tokio::test]
    async fn the_walk_of_several_conditions_follows_the_index_of_the_first() {
        let fixture = Fixture::new(Scheme::Sqlite).await;
        let listing = AuditListing {
            subject: Some("link:abc".to_owned()),
            key_id: Some("key".to_owned()),
            action: Some("link.revoke".to_owned()),
            before: Some(50),
            limit: 20,
        };
        let explain = |text| Statement::new(Scheme::Sqlite, text);
        let reach = explain(sql!("EXPLAIN QUERY PLAN SELECT id FROM "));
        let entries = explain(sql!("EXPLAIN QUERY PLAN SELECT * FROM "));
        for statement in [
            reach_of(reach, &listing, 10),
            select(entries, &listing, Some(5)),
        ] {
            let detail = |row: &Row| row.get("detail");
            let plan = fixture
                .store
                .all("plan", &statement, &statement.values, detail);
            let plan: Vec<String> = plan.await.expect("a plan");
            assert!(
                plan[0].contains("INDEX audit_log_by_subject (subject=? AND rowid"),
                "{plan:?}"
            );
            assert_eq!(plan.len(), 1, "{plan:?}");
        }
    }
}
