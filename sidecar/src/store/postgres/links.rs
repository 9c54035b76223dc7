//! Links in PostgreSQL.

use async_trait::async_trait;
use sqlx::Postgres;
use sqlx::postgres::PgConnection;
use vocabulary::Code;

use super::PostgresStore;
use super::creation::CreateLinks;
use super::outbox::enqueue;
use super::rows::{Rows, columns, read};
use super::work::Work;
use crate::domain::codes::numbering::Numbering;
use crate::domain::link::{Edit, Link, State};
use crate::domain::ports::{
    Created, Edited, Editor, LinkStore, Listing, OutboxSpan, Position, Receipt, StoreError,
};
use crate::store::shared::invalid;

#[async_trait]
impl LinkStore for PostgresStore {
    async fn create_links(&self, links: Vec<Link>) -> Result<Created, StoreError> {
        let create = CreateLinks {
            links: &links,
            numbering: &self.numbering,
        };
        self.transact(create).await
    }

    async fn find_link(&self, code: &Code) -> Result<Option<Link>, StoreError> {
        let numbering = &self.numbering;
        self.run(FindLink { code, numbering }).await
    }

    async fn edit_link(&self, code: &Code, editor: Editor) -> Result<Option<Edited>, StoreError> {
        let edit = EditLink {
            code,
            editor: Some(editor),
            numbering: &self.numbering,
        };
        self.transact(edit).await
    }

    async fn list_links(&self, listing: &Listing) -> Result<Vec<Link>, StoreError> {
        let numbering = &self.numbering;
        self.run(ListLinks { listing, numbering }).await
    }
}

/// The id that a code's link has, if there is one.
async fn find_id(
    connection: &mut PgConnection,
    numbering: &Numbering,
    code: &Code,
) -> Result<Option<i64>, sqlx::Error> {
    if let Some(number) = numbering.number(code) {
        return Ok(Some(number.get()));
    }
    let id: Option<i64> = sqlx::query_scalar("SELECT id FROM far_codes WHERE code = $1")
        .bind(code.as_str())
        .fetch_optional(connection)
        .await?;
    Ok(id.map(|id| -id))
}

struct FindLink<'a> {
    code: &'a Code,
    numbering: &'a Numbering,
}

#[async_trait]
impl Work for FindLink<'_> {
    type Output = Option<Link>;
    const OPERATION: &'static str = "find a link";

    async fn run(&mut self, connection: &mut PgConnection) -> Result<Option<Link>, sqlx::Error> {
        let Some(id) = find_id(connection, self.numbering, self.code).await? else {
            return Ok(None);
        };
        let statement = sqlx::query(concat!("SELECT ", columns!(), " FROM links WHERE id = $1"));
        find(connection, statement, id, self.code).await
    }
}

/// Finds a link by its id with one of two statements.
async fn find(
    connection: &mut PgConnection,
    statement: sqlx::query::Query<'_, Postgres, sqlx::postgres::PgArguments>,
    id: i64,
    code: &Code,
) -> Result<Option<Link>, sqlx::Error> {
    let row = statement.bind(id).fetch_optional(connection).await?;
    let link = row.as_ref().map(read).transpose()?;
    match link {
        // With another key than the database was made with, numbers mean nothing.
        Some(link) if link.code != *code => Err(invalid("links", "id")),
        link => Ok(link),
    }
}

struct EditLink<'a> {
    code: &'a Code,
    /// Taken when it is called, which is once.
    editor: Option<Editor>,
    numbering: &'a Numbering,
}

#[async_trait]
impl Work for EditLink<'_> {
    type Output = Option<Edited>;
    const OPERATION: &'static str = "change a link";

    async fn run(&mut self, connection: &mut PgConnection) -> Result<Option<Edited>, sqlx::Error> {
        let Some(id) = find_id(connection, self.numbering, self.code).await? else {
            return Ok(None);
        };
        let statement = sqlx::query(concat!(
            "SELECT ",
            columns!(),
            " FROM links WHERE id = $1 FOR UPDATE"
        ));
        let Some(link) = find(connection, statement, id, self.code).await? else {
            return Ok(None);
        };
        let Some(editor) = self.editor.take() else {
            return Ok(None);
        };
        let edit = editor(link);
        let mut receipt = Receipt::default();
        if let Edit::Changed(link) = &edit {
            let row: Rows<'_> = [(id, link)].into_iter().collect();
            row.update(connection).await?;
        }
        if let Edit::Changed(link) | Edit::Unchanged(link) = &edit {
            receipt.0.push(OutboxSpan {
                first: id,
                last: id,
                revision: link.revision,
            });
            enqueue(connection, &receipt.0, link.updated_at).await?;
        }
        Ok(Some(Edited { edit, receipt }))
    }

    /// What an editor has decided on may be another link when all is done again.
    fn is_repeatable(&self) -> bool {
        self.editor.is_some()
    }
}

struct ListLinks<'a> {
    listing: &'a Listing,
    numbering: &'a Numbering,
}

/// A statement that lists links behind a position, the latest first, up to a limit.
macro_rules! listing {
    ($condition:literal) => {
        sqlx::query(concat!(
            "SELECT ",
            columns!(),
            " FROM links WHERE (created_at, id) < ($1, $2) ",
            $condition,
            " ORDER BY created_at DESC, id DESC LIMIT $3"
        ))
    };
}

#[async_trait]
impl Work for ListLinks<'_> {
    type Output = Vec<Link>;
    const OPERATION: &'static str = "list links";

    async fn run(&mut self, connection: &mut PgConnection) -> Result<Vec<Link>, sqlx::Error> {
        // Behind the last position there is nothing, and everything is behind this one.
        let (created_at, id) = match &self.listing.after {
            Some(Position { created_at, code }) => (
                created_at.as_millisecond(),
                find_id(connection, self.numbering, code)
                    .await?
                    .unwrap_or(i64::MIN),
            ),
            None => (i64::MAX, i64::MAX),
        };
        let statement = match self.listing.state {
            None => listing!(""),
            Some((State::Live, _)) => {
                listing!("AND revoked_at IS NULL AND (valid_until IS NULL OR valid_until > $4)")
            }
            Some((State::Expired, _)) => {
                listing!("AND revoked_at IS NULL AND valid_until IS NOT NULL AND valid_until <= $4")
            }
            Some((State::Revoked, _)) => listing!("AND revoked_at IS NOT NULL"),
        };
        let statement = statement
            .bind(created_at)
            .bind(id)
            .bind(i64::from(self.listing.limit));
        let statement = match self.listing.state {
            Some((State::Live | State::Expired, now)) => statement.bind(now.as_second()),
            Some((State::Revoked, _)) | None => statement,
        };
        let rows = statement.fetch_all(connection).await?;
        rows.iter().map(read).collect()
    }
}
