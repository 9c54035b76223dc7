//! Links in SQLite.

use std::collections::HashMap;
use std::sync::Arc;

use async_trait::async_trait;
use jiff::Timestamp;
use sqlx::Sqlite;
use sqlx::sqlite::SqliteConnection;
use vocabulary::Code;

use super::creation::CreateLinks;
use super::digests::{FindOrCreate, find_by_digest};
use super::outbox::enqueue;
use super::writer::Write;
use super::{SqliteStore, history, invalid, listing, tags};
use crate::core::campaign::ParameterValues;
use crate::core::codes::numbering::Numbering;
use crate::core::link::{Edit, Link, PastChange};
use crate::core::ports::{
    ChangedBy, Created, Edited, Editor, FoundOrCreated, LinkStore, Listing, OutboxSpan, Position,
    Receipt, RequestDigest, StoreError,
};
use crate::core::target::Target;
use crate::store::audit;
use crate::store::columns as common;
use crate::store::db::Db;
use crate::store::past::NOBODY;
use crate::store::shared::Operation;
use crate::store::texts::of_tags;

/// What [`read`] reads, as a macro since statements are literals.
macro_rules! columns {
    () => {
        "code, target, campaign_id, parameters, redirect_status, forward_query, revision, valid_since, valid_until, \
         max_visits, paused_at, revoked_at, created_at, updated_at, created_by, external_id, \
         note, tags"
    };
}
pub(super) use crate::store::columns::link as read;
pub(super) use columns;

#[async_trait]
impl LinkStore for SqliteStore {
    async fn create_links(&self, links: Vec<Link>) -> Result<Created, StoreError> {
        let numbering = Arc::clone(&self.numbering);
        self.writer.write(CreateLinks { links, numbering }).await
    }

    async fn find_or_create_links(
        &self,
        links: Vec<(Link, RequestDigest)>,
    ) -> Result<FoundOrCreated, StoreError> {
        let numbering = Arc::clone(&self.numbering);
        self.writer.write(FindOrCreate { links, numbering }).await
    }

    async fn find_by_digest(&self, digest: &RequestDigest) -> Result<Option<Link>, StoreError> {
        find_by_digest(&self.readers, digest)
            .operation("find a link by what was asked for")
            .await
    }

    async fn find_link(&self, code: &Code) -> Result<Option<Link>, StoreError> {
        let found = async {
            match self.find_id(code).await? {
                Some(id) => find(&self.readers, id, code).await,
                None => Ok(None),
            }
        };
        found.operation("find a link").await
    }

    async fn find_links(&self, codes: &[Code]) -> Result<Vec<Link>, StoreError> {
        let found = async {
            let mut ids = Vec::with_capacity(codes.len());
            for code in codes {
                ids.extend(self.find_id(code).await?);
            }
            // In the order in which the rows lie.
            ids.sort_unstable();
            read_all(&self.readers, &ids).await
        };
        found.operation("find links").await
    }

    async fn edit_link(
        &self,
        code: &Code,
        by: &ChangedBy,
        editor: Editor,
    ) -> Result<Option<Edited>, StoreError> {
        let edit = EditLink {
            code: *code,
            by: by.clone(),
            editor: Some(editor),
            numbering: Arc::clone(&self.numbering),
        };
        self.writer.write(edit).await
    }

    async fn link_history(
        &self,
        code: &Code,
        before: Option<u64>,
        limit: u32,
    ) -> Result<Option<Vec<PastChange>>, StoreError> {
        self.read_history(code, before, limit)
            .operation("read a link's history")
            .await
    }

    async fn list_links(&self, listing: &Listing) -> Result<Vec<Link>, StoreError> {
        let list = async {
            let after = self.place(listing.after.as_ref()).await?;
            let until = match &listing.until {
                Some(position) => Some(self.place(Some(position)).await?),
                None => None,
            };
            let mut query = listing::query("", listing, after, until);
            let rows = query.build().fetch_all(&self.readers).await?;
            rows.iter().map(read).collect::<Result<Vec<_>, _>>()
        };
        list.operation("list links").await
    }

    async fn listing_reach(
        &self,
        listing: &Listing,
        most: u32,
    ) -> Result<Option<Position>, StoreError> {
        let reach = async {
            let after = self.place(listing.after.as_ref()).await?;
            let mut query = listing::reach("", listing, after, most);
            let found: Option<(i64, i64)> =
                query.build_query_as().fetch_optional(&self.readers).await?;
            let Some((created_at, id)) = found else {
                return Ok(None);
            };
            let code: Option<String> = sqlx::query_scalar("SELECT code FROM links WHERE id = ?1")
                .bind(id)
                .fetch_optional(&self.readers)
                .await?;
            common::position(created_at, code)
        };
        reach.operation("list links").await
    }

    async fn scan_links(&self, after: Option<&Code>, limit: u32) -> Result<Vec<Link>, StoreError> {
        let scan = async {
            let after = match after {
                None => i64::MIN,
                Some(code) => self
                    .find_id(code)
                    .await?
                    // A code that was read has an id.
                    .ok_or_else(|| invalid("far_codes", "code"))?,
            };
            let rows = sqlx::query(concat!(
                "SELECT ",
                columns!(),
                " FROM links WHERE id > ?1 ORDER BY id LIMIT ?2"
            ))
            .bind(after)
            .bind(limit)
            .fetch_all(&self.readers)
            .await?;
            rows.iter().map(read).collect::<Result<Vec<_>, _>>()
        };
        scan.operation("read all links").await
    }
}

impl SqliteStore {
    async fn read_history(
        &self,
        code: &Code,
        before: Option<u64>,
        limit: u32,
    ) -> Result<Option<Vec<PastChange>>, sqlx::Error> {
        let Some(id) = self.find_id(code).await? else {
            return Ok(None);
        };
        let Some(link) = find(&self.readers, id, code).await? else {
            return Ok(None);
        };
        let changes = history::read(&self.readers, id, &link, before, limit).await?;
        Ok(Some(changes))
    }

    /// The id that a code's link has, if there is one.
    pub(super) async fn find_id(&self, code: &Code) -> Result<Option<i64>, sqlx::Error> {
        find_id(&self.readers, &self.numbering, code).await
    }

    /// The creation time and the id that a position stands for. Behind the last position there is
    /// nothing, and everything is behind none.
    async fn place(&self, position: Option<&Position>) -> Result<(i64, i64), sqlx::Error> {
        let Some(Position { created_at, code }) = position else {
            return Ok((i64::MAX, i64::MAX));
        };
        let id = self.find_id(code).await?;
        Ok((created_at.as_millisecond(), id.unwrap_or(i64::MIN)))
    }
}

/// The id that a code's link has, if there is one.
pub(super) async fn find_id<'e>(
    executor: impl sqlx::Executor<'e, Database = Sqlite>,
    numbering: &Numbering,
    code: &Code,
) -> Result<Option<i64>, sqlx::Error> {
    if let Some(number) = numbering.number(code) {
        return Ok(Some(number.get()));
    }
    let id: Option<i64> = sqlx::query_scalar("SELECT id FROM far_codes WHERE code = ?1")
        .bind(code.as_str())
        .fetch_optional(executor)
        .await?;
    Ok(id.map(|id| -id))
}

/// The id that a code's link has or would have.
pub(super) async fn id_of(
    connection: &mut SqliteConnection,
    numbering: &Numbering,
    code: &Code,
) -> Result<i64, sqlx::Error> {
    match numbering.number(code) {
        Some(number) => Ok(number.get()),
        None => far_id(connection, code.as_str()).await,
    }
}

/// The id that the link of a text would have if it is a code; one that no link has if it is none.
async fn id_of_text(
    connection: &mut SqliteConnection,
    numbering: &Numbering,
    text: &str,
) -> Result<i64, sqlx::Error> {
    match text.parse() {
        Ok(code) => id_of(connection, numbering, &code).await,
        Err(_) => far_id(connection, text).await,
    }
}

/// The ids of the links of codes, one for each. A code without a number is given an id, whether it
/// has a link or not: its visits are found by it, also if its link is made later. There are few:
/// visits are those of links that there are or were.
pub(super) async fn link_ids<'a>(
    connection: &mut SqliteConnection,
    numbering: &Numbering,
    codes: impl Iterator<Item = &'a str> + Send,
) -> Result<Vec<i64>, sqlx::Error> {
    let mut known = HashMap::new();
    let mut ids = Vec::new();
    for code in codes {
        let id = match known.get(code) {
            Some(&id) => id,
            None => {
                let id = id_of_text(connection, numbering, code).await?;
                known.insert(code, id);
                id
            }
        };
        ids.push(id);
    }
    Ok(ids)
}

/// The id of a text that has no number.
async fn far_id(connection: &mut SqliteConnection, text: &str) -> Result<i64, sqlx::Error> {
    // The update that changes nothing makes SQLite answer with the row that is there.
    let id: i64 = sqlx::query_scalar(
        "INSERT INTO far_codes (code) VALUES (?1) \
         ON CONFLICT (code) DO UPDATE SET code = code RETURNING id",
    )
    .bind(text)
    .fetch_one(connection)
    .await?;
    Ok(-id)
}

async fn find<'e>(
    executor: impl sqlx::Executor<'e, Database = Sqlite>,
    id: i64,
    code: &Code,
) -> Result<Option<Link>, sqlx::Error> {
    let row = sqlx::query(concat!("SELECT ", columns!(), " FROM links WHERE id = ?1"))
        .bind(id)
        .fetch_optional(executor)
        .await?;
    let link = row.as_ref().map(read).transpose()?;
    match link {
        // With another key than the database was made with, numbers mean nothing.
        Some(link) if link.code != *code => Err(invalid("links", "id")),
        link => Ok(link),
    }
}

/// Reads the links that have these ids, with one statement.
async fn read_all<'e>(
    executor: impl sqlx::Executor<'e, Database = Sqlite>,
    ids: &[i64],
) -> Result<Vec<Link>, sqlx::Error> {
    let mut list = String::with_capacity(ids.len() * 20 + 2);
    for id in ids {
        list.push(if list.is_empty() { '[' } else { ',' });
        list.push_str(&id.to_string());
    }
    if list.is_empty() {
        return Ok(Vec::new());
    }
    list.push(']');
    let rows = sqlx::query(concat!(
        "SELECT ",
        columns!(),
        " FROM json_each(?1) AS wanted CROSS JOIN links ON links.id = wanted.value"
    ))
    .bind(list)
    .fetch_all(executor)
    .await?;
    rows.iter().map(read).collect()
}

struct EditLink {
    code: Code,
    by: ChangedBy,
    /// Taken when it is called, which is once.
    editor: Option<Editor>,
    numbering: Arc<Numbering>,
}

#[async_trait]
impl Write for EditLink {
    type Output = Option<Edited>;
    const OPERATION: &'static str = "change a link";

    async fn apply(
        &mut self,
        connection: &mut SqliteConnection,
    ) -> Result<Option<Edited>, sqlx::Error> {
        let Some(id) = find_id(&mut *connection, &self.numbering, &self.code).await? else {
            return Ok(None);
        };
        let Some(link) = find(&mut *connection, id, &self.code).await? else {
            return Ok(None);
        };
        let Some(editor) = self.editor.take() else {
            return Ok(None);
        };
        let before = link.clone();
        let edit = editor(link);
        let mut receipt = Receipt::default();
        if let Edit::Changed(link) = &edit {
            let key_id = self.by.key_id.as_deref().unwrap_or(NOBODY);
            history::add(connection, id, &before, link.updated_at, key_id).await?;
            audit::append(&mut Db::Sqlite(connection), &self.by.of_link(link, &before)).await?;
            update(connection, id, link).await?;
            if before.tags != link.tags {
                tags::remove(connection, id, link.created_at, &before.tags).await?;
                tags::add(connection, id, link.created_at, &link.tags).await?;
            }
        }
        if let Edit::Changed(link) | Edit::Unchanged(link) = &edit {
            let span = OutboxSpan {
                first: id,
                last: id,
                revision: link.revision,
            };
            enqueue(connection, &[span], link.updated_at).await?;
            receipt.0.push(span);
        }
        Ok(Some(Edited { edit, receipt }))
    }
}

/// Writes what can change of a link.
async fn update(
    connection: &mut SqliteConnection,
    id: i64,
    link: &Link,
) -> Result<(), sqlx::Error> {
    sqlx::query(
        "UPDATE links SET target = ?2, redirect_status = ?3, forward_query = ?4, revision = ?5, \
         valid_since = ?6, valid_until = ?7, max_visits = ?8, paused_at = ?9, revoked_at = ?10, \
         updated_at = ?11, external_id = ?12, note = ?13, tags = ?14, parameters = ?15 \
         WHERE id = ?1",
    )
    .bind(id)
    .bind(link.destination.target().map(Target::as_str))
    .bind(link.redirect_status.code())
    .bind(link.forward_query)
    .bind(link.revision as i64)
    .bind(link.valid_since.map(|second| second.get() as i64))
    .bind(link.valid_until.map(|second| second.get() as i64))
    .bind(link.max_visits.map(|visits| visits.get() as i64))
    .bind(link.paused_at.map(Timestamp::as_millisecond))
    .bind(link.revoked_at.map(Timestamp::as_millisecond))
    .bind(link.updated_at.as_millisecond())
    .bind(link.external_id.as_deref())
    .bind(link.note.as_deref())
    .bind(of_tags(&link.tags))
    .bind(link.destination.values().map(ParameterValues::as_str))
    .execute(connection)
    .await?;
    Ok(())
}
