//! Links in PostgreSQL.

use std::collections::HashMap;

use async_trait::async_trait;
use sqlx::postgres::PgArguments;
use sqlx::query::Query;
use sqlx::{Postgres, Row as _};
use vocabulary::Code;

use super::creation::CreateLinks;
use super::digests::{FindByDigest, FindOrCreate};
use super::history::ReadHistory;
use super::outbox::enqueue;
use super::rows::{Rows, columns, read};
use super::statements::Statements;
use super::work::Work;
use super::{PostgresStore, history, listing, tags};
use crate::core::codes::numbering::Numbering;
use crate::core::link::{Edit, Link, PastChange};
use crate::core::ports::{
    ChangedBy, Created, Edited, Editor, FoundOrCreated, LinkStore, Listing, OutboxSpan, Position,
    Receipt, RequestDigest, StoreError,
};
use crate::store::audit;
use crate::store::columns as common;
use crate::store::db::Db;
use crate::store::past::NOBODY;
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

    async fn find_or_create_links(
        &self,
        links: Vec<(Link, RequestDigest)>,
    ) -> Result<FoundOrCreated, StoreError> {
        let find_or_create = FindOrCreate {
            links: &links,
            numbering: &self.numbering,
        };
        self.transact(find_or_create).await
    }

    async fn find_by_digest(&self, digest: &RequestDigest) -> Result<Option<Link>, StoreError> {
        self.run(FindByDigest(digest)).await
    }

    async fn find_link(&self, code: &Code) -> Result<Option<Link>, StoreError> {
        let numbering = &self.numbering;
        self.run(FindLink { code, numbering }).await
    }

    async fn find_links(&self, codes: &[Code]) -> Result<Vec<Link>, StoreError> {
        let numbering = &self.numbering;
        self.run(FindLinks { codes, numbering }).await
    }

    async fn edit_link(
        &self,
        code: &Code,
        by: &ChangedBy,
        editor: Editor,
    ) -> Result<Option<Edited>, StoreError> {
        let edit = EditLink {
            code,
            by,
            editor: Some(editor),
            numbering: &self.numbering,
        };
        self.transact(edit).await
    }

    async fn link_history(
        &self,
        code: &Code,
        before: Option<u64>,
        limit: u32,
    ) -> Result<Option<Vec<PastChange>>, StoreError> {
        let read = ReadHistory {
            code,
            before,
            limit,
            numbering: &self.numbering,
        };
        self.run(read).await
    }

    async fn list_links(&self, listing: &Listing) -> Result<Vec<Link>, StoreError> {
        if !listing::is_possible(listing) {
            return Ok(Vec::new());
        }
        let numbering = &self.numbering;
        self.run(ListLinks { listing, numbering }).await
    }

    async fn listing_reach(
        &self,
        listing: &Listing,
        most: u32,
    ) -> Result<Option<Position>, StoreError> {
        if !listing::is_possible(listing) {
            return Ok(None);
        }
        let numbering = &self.numbering;
        self.run(FindReach {
            listing,
            most,
            numbering,
        })
        .await
    }

    async fn scan_links(&self, after: Option<&Code>, limit: u32) -> Result<Vec<Link>, StoreError> {
        let scan = ScanLinks {
            after,
            limit,
            numbering: &self.numbering,
        };
        self.run(scan).await
    }
}

/// The id that a code's link has, if there is one.
pub(super) async fn find_id(
    connection: &mut Statements<'_>,
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

/// The ids that the links of codes have, each in its code's place; none for a code that no link
/// can have had.
pub(super) async fn known_ids(
    connection: &mut Statements<'_>,
    numbering: &Numbering,
    codes: &[Code],
) -> Result<Vec<Option<i64>>, sqlx::Error> {
    let numbers = codes.iter().map(|code| numbering.number(code));
    let mut ids: Vec<Option<i64>> = numbers
        .map(|number| number.map(|number| number.get()))
        .collect();
    let unknown = codes.iter().zip(&ids).filter(|(_, id)| id.is_none());
    let far: Vec<&str> = unknown.map(|(code, _)| code.as_str()).collect();
    if !far.is_empty() {
        let rows: Vec<(String, i64)> =
            sqlx::query_as("SELECT code, -id FROM far_codes WHERE code = ANY($1::text[])")
                .bind(far)
                .fetch_all(connection)
                .await?;
        let far: HashMap<String, i64> = rows.into_iter().collect();
        for (id, code) in ids.iter_mut().zip(codes) {
            *id = id.or_else(|| far.get(code.as_str()).copied());
        }
    }
    Ok(ids)
}

struct FindLink<'a> {
    code: &'a Code,
    numbering: &'a Numbering,
}

#[async_trait]
impl Work for FindLink<'_> {
    type Output = Option<Link>;
    const OPERATION: &'static str = "find a link";

    async fn run(&mut self, connection: &mut Statements<'_>) -> Result<Option<Link>, sqlx::Error> {
        let Some(id) = find_id(connection, self.numbering, self.code).await? else {
            return Ok(None);
        };
        find(connection, id, self.code).await
    }
}

/// Finds a link by its id.
pub(super) async fn find(
    connection: &mut Statements<'_>,
    id: i64,
    code: &Code,
) -> Result<Option<Link>, sqlx::Error> {
    let statement = sqlx::query(concat!("SELECT ", columns!(), " FROM links WHERE id = $1"));
    find_with(connection, statement, id, code).await
}

/// Finds a link by its id with a statement.
async fn find_with(
    connection: &mut Statements<'_>,
    statement: Query<'_, Postgres, PgArguments>,
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

/// Finds the links that have these ids.
pub(super) async fn find_by_id(
    connection: &mut Statements<'_>,
    ids: Vec<i64>,
) -> Result<HashMap<i64, Link>, sqlx::Error> {
    if ids.is_empty() {
        return Ok(HashMap::new());
    }
    let rows = sqlx::query(concat!(
        "SELECT id, ",
        columns!(),
        " FROM links WHERE id = ANY($1::bigint[])"
    ))
    .bind(ids)
    .fetch_all(connection)
    .await?;
    rows.iter()
        .map(|row| Ok((row.try_get("id")?, read(row)?)))
        .collect()
}

struct FindLinks<'a> {
    codes: &'a [Code],
    numbering: &'a Numbering,
}

#[async_trait]
impl Work for FindLinks<'_> {
    type Output = Vec<Link>;
    const OPERATION: &'static str = "find links";

    async fn run(&mut self, connection: &mut Statements<'_>) -> Result<Vec<Link>, sqlx::Error> {
        let ids = known_ids(connection, self.numbering, self.codes).await?;
        let ids = ids.into_iter().flatten().collect();
        let links = find_by_id(connection, ids).await?;
        Ok(links.into_values().collect())
    }
}

struct EditLink<'a> {
    code: &'a Code,
    by: &'a ChangedBy,
    /// Taken when it is called, which is once.
    editor: Option<Editor>,
    numbering: &'a Numbering,
}

#[async_trait]
impl Work for EditLink<'_> {
    type Output = Option<Edited>;
    const OPERATION: &'static str = "change a link";

    async fn run(
        &mut self,
        connection: &mut Statements<'_>,
    ) -> Result<Option<Edited>, sqlx::Error> {
        let Some(id) = find_id(connection, self.numbering, self.code).await? else {
            return Ok(None);
        };
        let statement = sqlx::query(concat!(
            "SELECT ",
            columns!(),
            " FROM links WHERE id = $1 FOR UPDATE"
        ));
        let Some(link) = find_with(connection, statement, id, self.code).await? else {
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
            audit::append(
                &mut Db::postgres(connection.connection()),
                &self.by.of_link(link, &before),
            )
            .await?;
            let row: Rows<'_> = [(id, link)].into_iter().collect();
            row.update(connection).await?;
            if before.tags != link.tags {
                tags::remove(connection, [(id, &before)]).await?;
                tags::add(connection, [(id, link)]).await?;
            }
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

#[async_trait]
impl Work for ListLinks<'_> {
    type Output = Vec<Link>;
    const OPERATION: &'static str = "list links";

    async fn run(&mut self, connection: &mut Statements<'_>) -> Result<Vec<Link>, sqlx::Error> {
        let Self { listing, numbering } = *self;
        let after = place(connection, numbering, listing.after.as_ref()).await?;
        let until = match &listing.until {
            Some(position) => Some(place(connection, numbering, Some(position)).await?),
            None => None,
        };
        let mut query = listing::query(listing, after, until);
        let rows = query.build().fetch_all(connection).await?;
        rows.iter().map(read).collect()
    }
}

struct FindReach<'a> {
    listing: &'a Listing,
    most: u32,
    numbering: &'a Numbering,
}

#[async_trait]
impl Work for FindReach<'_> {
    type Output = Option<Position>;
    const OPERATION: &'static str = "list links";

    async fn run(
        &mut self,
        connection: &mut Statements<'_>,
    ) -> Result<Option<Position>, sqlx::Error> {
        let after = place(connection, self.numbering, self.listing.after.as_ref()).await?;
        let mut query = listing::reach(self.listing, after, self.most);
        let query = query.build_query_as();
        let found: Option<(i64, i64)> = query.fetch_optional(&mut *connection).await?;
        let Some((created_at, id)) = found else {
            return Ok(None);
        };
        let code: Option<String> = sqlx::query_scalar("SELECT code FROM links WHERE id = $1")
            .bind(id)
            .fetch_optional(connection)
            .await?;
        common::position(created_at, code)
    }
}

/// The creation time and the id that a position stands for. Behind the last position there is
/// nothing, and everything is behind none.
async fn place(
    connection: &mut Statements<'_>,
    numbering: &Numbering,
    position: Option<&Position>,
) -> Result<(i64, i64), sqlx::Error> {
    let Some(Position { created_at, code }) = position else {
        return Ok((i64::MAX, i64::MAX));
    };
    let id = find_id(connection, numbering, code).await?;
    Ok((created_at.as_millisecond(), id.unwrap_or(i64::MIN)))
}

struct ScanLinks<'a> {
    after: Option<&'a Code>,
    limit: u32,
    numbering: &'a Numbering,
}

#[async_trait]
impl Work for ScanLinks<'_> {
    type Output = Vec<Link>;
    const OPERATION: &'static str = "read all links";

    async fn run(&mut self, connection: &mut Statements<'_>) -> Result<Vec<Link>, sqlx::Error> {
        let after = match self.after {
            None => i64::MIN,
            Some(code) => find_id(connection, self.numbering, code)
                .await?
                // A code that was read has an id.
                .ok_or_else(|| invalid("far_codes", "code"))?,
        };
        let rows = sqlx::query(concat!(
            "SELECT ",
            columns!(),
            " FROM links WHERE id > $1 ORDER BY id LIMIT $2"
        ))
        .bind(after)
        .bind(i64::from(self.limit))
        .fetch_all(connection)
        .await?;
        rows.iter().map(read).collect()
    }
}
