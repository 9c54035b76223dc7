//! Links in SQLite.

use async_trait::async_trait;
use jiff::Timestamp;
use sqlx::sqlite::{SqliteConnection, SqliteRow};
use sqlx::{Row, Sqlite};
use vocabulary::{Code, RedirectStatus};

use super::outbox::enqueue;
use super::writer::Write;
use super::{SqliteStore, failed, invalid};
use crate::domain::link::{Edit, Expiry, Link, State};
use crate::domain::ports::{Editor, LinkStore, Listing, Position, StoreError};
use crate::domain::target::Target;

/// What [`read`] reads, as a macro since statements are literals.
macro_rules! columns {
    () => {
        "links.code, target, redirect_status, links.revision, expires_at, revoked_at, \
         created_at, updated_at, created_by"
    };
}
pub(super) use columns;

#[async_trait]
impl LinkStore for SqliteStore {
    async fn create_link(&self, link: &Link) -> Result<bool, StoreError> {
        self.writer.write(CreateLink(link.clone())).await
    }

    async fn find_link(&self, code: &Code) -> Result<Option<Link>, StoreError> {
        find(&self.readers, code)
            .await
            .map_err(failed("find a link"))
    }

    async fn edit_link(&self, code: &Code, editor: Editor) -> Result<Option<Edit>, StoreError> {
        let edit = EditLink {
            code: *code,
            editor: Some(editor),
        };
        self.writer.write(edit).await
    }

    async fn list_links(&self, listing: &Listing) -> Result<Vec<Link>, StoreError> {
        // Behind the last position there is nothing, and everything is behind this one.
        let (created_at, code) = match &listing.after {
            Some(Position { created_at, code }) => (created_at.as_millisecond(), code.as_str()),
            None => (i64::MAX, ""),
        };
        let query = match listing.state {
            None => sqlx::query(concat!(
                "SELECT ",
                columns!(),
                " FROM links INDEXED BY links_by_age \
                 WHERE (created_at, code) < (?1, ?2) \
                 ORDER BY created_at DESC, code DESC LIMIT ?3"
            )),
            Some((State::Live, _)) => sqlx::query(concat!(
                "SELECT ",
                columns!(),
                " FROM links INDEXED BY links_by_age \
                 WHERE (created_at, code) < (?1, ?2) \
                 AND revoked_at IS NULL AND (expires_at IS NULL OR expires_at > ?4) \
                 ORDER BY created_at DESC, code DESC LIMIT ?3"
            )),
            Some((State::Expired, _)) => sqlx::query(concat!(
                "SELECT ",
                columns!(),
                " FROM links INDEXED BY links_expiring_by_age \
                 WHERE (created_at, code) < (?1, ?2) \
                 AND revoked_at IS NULL AND expires_at IS NOT NULL AND expires_at <= ?4 \
                 ORDER BY created_at DESC, code DESC LIMIT ?3"
            )),
            Some((State::Revoked, _)) => sqlx::query(concat!(
                "SELECT ",
                columns!(),
                " FROM links INDEXED BY links_revoked_by_age \
                 WHERE (created_at, code) < (?1, ?2) AND revoked_at IS NOT NULL \
                 ORDER BY created_at DESC, code DESC LIMIT ?3"
            )),
        };
        let query = query.bind(created_at).bind(code).bind(listing.limit);
        let query = match listing.state {
            Some((State::Live | State::Expired, now)) => query.bind(now.as_second()),
            Some((State::Revoked, _)) | None => query,
        };
        let rows = query
            .fetch_all(&self.readers)
            .await
            .map_err(failed("list links"))?;
        rows.iter()
            .map(read)
            .collect::<Result<_, _>>()
            .map_err(failed("list links"))
    }
}

/// Reads a link from a row with [`columns!`].
pub(super) fn read(row: &SqliteRow) -> Result<Link, sqlx::Error> {
    let bad = |column| move || invalid("links", column);
    let moment = |column: &'static str| -> Result<Timestamp, sqlx::Error> {
        Timestamp::from_millisecond(row.try_get(column)?).map_err(|_error| invalid("links", column))
    };
    let code: &str = row.try_get("code")?;
    let status: u16 = row.try_get("redirect_status")?;
    let expires_at = match row.try_get::<Option<i64>, _>("expires_at")? {
        None => None,
        Some(second) => Some(
            Timestamp::from_second(second)
                .ok()
                .and_then(Expiry::at)
                .ok_or_else(bad("expires_at"))?,
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
    code: &Code,
) -> Result<Option<Link>, sqlx::Error> {
    sqlx::query(concat!(
        "SELECT ",
        columns!(),
        " FROM links WHERE code = ?1"
    ))
    .bind(code.as_str())
    .fetch_optional(executor)
    .await?
    .as_ref()
    .map(read)
    .transpose()
}

struct CreateLink(Link);

#[async_trait]
impl Write for CreateLink {
    type Output = bool;
    const OPERATION: &'static str = "keep a new link";

    async fn apply(&mut self, connection: &mut SqliteConnection) -> Result<bool, sqlx::Error> {
        let link = &self.0;
        let inserted = sqlx::query(
            "INSERT INTO links (code, target, redirect_status, revision, expires_at, revoked_at, \
             created_at, updated_at, created_by) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9) \
             ON CONFLICT (code) DO NOTHING",
        )
        .bind(link.code.as_str())
        .bind(link.target.as_str())
        .bind(link.redirect_status.code())
        .bind(link.revision as i64)
        .bind(link.expires_at.map(|expiry| expiry.moment().as_second()))
        .bind(link.revoked_at.map(Timestamp::as_millisecond))
        .bind(link.created_at.as_millisecond())
        .bind(link.updated_at.as_millisecond())
        .bind(&link.created_by)
        .execute(&mut *connection)
        .await?
        .rows_affected();
        if inserted == 0 {
            return Ok(false);
        }
        enqueue(connection, link, link.created_at).await?;
        Ok(true)
    }
}

struct EditLink {
    code: Code,
    /// Taken when it is called, which is once.
    editor: Option<Editor>,
}

#[async_trait]
impl Write for EditLink {
    type Output = Option<Edit>;
    const OPERATION: &'static str = "change a link";

    async fn apply(
        &mut self,
        connection: &mut SqliteConnection,
    ) -> Result<Option<Edit>, sqlx::Error> {
        let Some(link) = find(&mut *connection, &self.code).await? else {
            return Ok(None);
        };
        let Some(editor) = self.editor.take() else {
            return Ok(None);
        };
        let edit = editor(link);
        match &edit {
            Edit::Changed(link) => {
                sqlx::query(
                    "UPDATE links SET target = ?2, redirect_status = ?3, revision = ?4, \
                     expires_at = ?5, revoked_at = ?6, updated_at = ?7 WHERE code = ?1",
                )
                .bind(link.code.as_str())
                .bind(link.target.as_str())
                .bind(link.redirect_status.code())
                .bind(link.revision as i64)
                .bind(link.expires_at.map(|expiry| expiry.moment().as_second()))
                .bind(link.revoked_at.map(Timestamp::as_millisecond))
                .bind(link.updated_at.as_millisecond())
                .execute(&mut *connection)
                .await?;
                enqueue(connection, link, link.updated_at).await?;
            }
            Edit::Unchanged(link) => enqueue(connection, link, link.updated_at).await?,
            Edit::Refused => {}
        }
        Ok(Some(edit))
    }
}
