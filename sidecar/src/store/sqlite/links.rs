//! Links in SQLite.

use std::sync::Arc;

use async_trait::async_trait;
use jiff::Timestamp;
use sqlx::sqlite::{SqliteConnection, SqliteRow};
use sqlx::{Row, Sqlite};
use vocabulary::{Code, RedirectStatus};

use super::creation::CreateLinks;
use super::outbox::enqueue;
use super::writer::Write;
use super::{SqliteStore, failed, invalid};
use crate::domain::codes::numbering::Numbering;
use crate::domain::link::{Edit, Expiry, Link, State};
use crate::domain::ports::{
    Created, Edited, Editor, LinkStore, Listing, OutboxSpan, Position, Receipt, StoreError,
};
use crate::domain::target::Target;

/// What [`read`] reads, as a macro since statements are literals.
macro_rules! columns {
    () => {
        "code, target, redirect_status, revision, valid_until, revoked_at, \
         created_at, updated_at, created_by"
    };
}
pub(super) use columns;

#[async_trait]
impl LinkStore for SqliteStore {
    async fn create_links(&self, links: Vec<Link>) -> Result<Created, StoreError> {
        let numbering = Arc::clone(&self.numbering);
        self.writer.write(CreateLinks { links, numbering }).await
    }

    async fn find_link(&self, code: &Code) -> Result<Option<Link>, StoreError> {
        let found = async {
            match self.find_id(code).await? {
                Some(id) => find(&self.readers, id, code).await,
                None => Ok(None),
            }
        };
        found.await.map_err(failed("find a link"))
    }

    async fn edit_link(&self, code: &Code, editor: Editor) -> Result<Option<Edited>, StoreError> {
        let edit = EditLink {
            code: *code,
            editor: Some(editor),
            numbering: Arc::clone(&self.numbering),
        };
        self.writer.write(edit).await
    }

    async fn list_links(&self, listing: &Listing) -> Result<Vec<Link>, StoreError> {
        let list = async {
            // Behind the last position there is nothing, and everything is behind this one.
            let (created_at, id) = match &listing.after {
                Some(Position { created_at, code }) => (
                    created_at.as_millisecond(),
                    self.find_id(code).await?.unwrap_or(i64::MIN),
                ),
                None => (i64::MAX, i64::MAX),
            };
            let query = match listing.state {
                None => sqlx::query(concat!(
                    "SELECT ",
                    columns!(),
                    " FROM links INDEXED BY links_by_age WHERE (created_at, id) < (?1, ?2) \
                     ORDER BY created_at DESC, id DESC LIMIT ?3"
                )),
                Some((State::Live, _)) => sqlx::query(concat!(
                    "SELECT ",
                    columns!(),
                    " FROM links INDEXED BY links_by_age WHERE (created_at, id) < (?1, ?2) \
                     AND revoked_at IS NULL AND (valid_until IS NULL OR valid_until > ?4) \
                     ORDER BY created_at DESC, id DESC LIMIT ?3"
                )),
                Some((State::Expired, _)) => sqlx::query(concat!(
                    "SELECT ",
                    columns!(),
                    " FROM links INDEXED BY links_ending_by_age WHERE (created_at, id) < (?1, ?2) \
                     AND revoked_at IS NULL AND valid_until IS NOT NULL AND valid_until <= ?4 \
                     ORDER BY created_at DESC, id DESC LIMIT ?3"
                )),
                Some((State::Revoked, _)) => sqlx::query(concat!(
                    "SELECT ",
                    columns!(),
                    " FROM links INDEXED BY links_revoked_by_age \
                     WHERE (created_at, id) < (?1, ?2) AND revoked_at IS NOT NULL \
                     ORDER BY created_at DESC, id DESC LIMIT ?3"
                )),
            };
            let query = query.bind(created_at).bind(id).bind(listing.limit);
            let query = match listing.state {
                Some((State::Live | State::Expired, now)) => query.bind(now.as_second()),
                Some((State::Revoked, _)) | None => query,
            };
            let rows = query.fetch_all(&self.readers).await?;
            rows.iter().map(read).collect::<Result<Vec<_>, _>>()
        };
        list.await.map_err(failed("list links"))
    }
}

impl SqliteStore {
    /// The id that a code's link has, if there is one.
    pub(super) async fn find_id(&self, code: &Code) -> Result<Option<i64>, sqlx::Error> {
        find_id(&self.readers, &self.numbering, code).await
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
    if let Some(number) = numbering.number(code) {
        return Ok(number.get());
    }
    // The update that changes nothing makes SQLite answer with the row that is there.
    let id: i64 = sqlx::query_scalar(
        "INSERT INTO far_codes (code) VALUES (?1) \
         ON CONFLICT (code) DO UPDATE SET code = code RETURNING id",
    )
    .bind(code.as_str())
    .fetch_one(connection)
    .await?;
    Ok(-id)
}

/// Reads a link from a row with [`columns!`].
pub(super) fn read(row: &SqliteRow) -> Result<Link, sqlx::Error> {
    let bad = |column| move || invalid("links", column);
    let moment = |column: &'static str| -> Result<Timestamp, sqlx::Error> {
        Timestamp::from_millisecond(row.try_get(column)?).map_err(|_error| invalid("links", column))
    };
    let code: &str = row.try_get("code")?;
    let status: u16 = row.try_get("redirect_status")?;
    let expires_at = match row.try_get::<Option<i64>, _>("valid_until")? {
        None => None,
        Some(second) => Some(
            Timestamp::from_second(second)
                .ok()
                .and_then(Expiry::at)
                .ok_or_else(bad("valid_until"))?,
        ),
    };
    let revoked_at = match row.try_get::<Option<i64>, _>("revoked_at")? {
        None => None,
        Some(_) => Some(moment("revoked_at")?),
    };
    Ok(Link {
        code: code.parse().map_err(|_error| invalid("links", "code"))?,
        target: Target::from_stored(row.try_get("target")?),
        redirect_status: RedirectStatus::from_code(status).ok_or_else(bad("redirect_status"))?,
        revision: u64::try_from(row.try_get::<i64, _>("revision")?)
            .map_err(|_error| invalid("links", "revision"))?,
        expires_at,
        revoked_at,
        created_at: moment("created_at")?,
        updated_at: moment("updated_at")?,
        created_by: row.try_get("created_by")?,
    })
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

struct EditLink {
    code: Code,
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
        let edit = editor(link);
        let mut receipt = Receipt::default();
        if let Edit::Changed(link) = &edit {
            sqlx::query(
                "UPDATE links SET target = ?2, redirect_status = ?3, revision = ?4, \
                 valid_until = ?5, revoked_at = ?6, updated_at = ?7 WHERE id = ?1",
            )
            .bind(id)
            .bind(link.target.as_str())
            .bind(link.redirect_status.code())
            .bind(link.revision as i64)
            .bind(link.expires_at.map(|expiry| expiry.moment().as_second()))
            .bind(link.revoked_at.map(Timestamp::as_millisecond))
            .bind(link.updated_at.as_millisecond())
            .execute(&mut *connection)
            .await?;
        }
        if let Edit::Changed(link) | Edit::Unchanged(link) = &edit {
            let span = OutboxSpan {
                first: id,
                last: id,
                revision: link.revision,
            };
            enqueue(connection, span, link.updated_at).await?;
            receipt.0.push(span);
        }
        Ok(Some(Edited { edit, receipt }))
    }
}
