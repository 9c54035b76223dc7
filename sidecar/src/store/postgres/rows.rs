//! Links as rows: the one place that knows which columns they have in PostgreSQL.
//!
//! A column is in [`columns!`], in [`new_rows!`], in [`Rows`] and in [`read`].

use jiff::Timestamp;
use sqlx::Row as _;
use sqlx::postgres::{PgArguments, PgConnection, PgRow};
use sqlx::query::Query;
use sqlx::{Postgres, query};
use vocabulary::RedirectStatus;

use crate::domain::link::{Expiry, Link};
use crate::domain::target::Target;
use crate::store::shared::invalid;

/// What is kept of a link besides its id, as a macro since statements are literals.
macro_rules! columns {
    () => {
        "code, target, redirect_status, revision, valid_until, revoked_at, \
         created_at, updated_at, created_by"
    };
}
pub(super) use columns;

/// The rows of [`Rows`]: the ids and the [`columns!`].
macro_rules! new_rows {
    () => {
        concat!(
            "unnest($1::bigint[], $2::text[], $3::text[], $4::integer[], $5::bigint[], \
             $6::bigint[], $7::bigint[], $8::bigint[], $9::bigint[], $10::text[]) AS new (id, ",
            columns!(),
            ")"
        )
    };
}

/// Links to be written, column by column.
#[derive(Default)]
pub(super) struct Rows<'a> {
    ids: Vec<i64>,
    codes: Vec<&'a str>,
    targets: Vec<&'a str>,
    redirect_statuses: Vec<i32>,
    revisions: Vec<i64>,
    valid_until: Vec<Option<i64>>,
    revoked_at: Vec<Option<i64>>,
    created_at: Vec<i64>,
    updated_at: Vec<i64>,
    created_by: Vec<&'a str>,
}

impl<'a> FromIterator<(i64, &'a Link)> for Rows<'a> {
    fn from_iter<I: IntoIterator<Item = (i64, &'a Link)>>(links: I) -> Self {
        let mut rows = Self::default();
        for (id, link) in links {
            let expiry = link.expires_at.map(|expiry| expiry.moment().as_second());
            rows.ids.push(id);
            rows.codes.push(link.code.as_str());
            rows.targets.push(link.target.as_str());
            rows.redirect_statuses
                .push(link.redirect_status.code().into());
            rows.revisions.push(link.revision as i64);
            rows.valid_until.push(expiry);
            rows.revoked_at
                .push(link.revoked_at.map(Timestamp::as_millisecond));
            rows.created_at.push(link.created_at.as_millisecond());
            rows.updated_at.push(link.updated_at.as_millisecond());
            rows.created_by.push(&link.created_by);
        }
        rows
    }
}

impl<'a> Rows<'a> {
    /// Keeps the links whose ids are free; answers these ids in no order.
    pub(super) async fn insert(
        self,
        connection: &mut PgConnection,
    ) -> Result<Vec<i64>, sqlx::Error> {
        // One row with all ids costs less on the way than a row for each.
        let statement = query(concat!(
            "WITH kept AS (INSERT INTO links (id, ",
            columns!(),
            ") SELECT * FROM ",
            new_rows!(),
            " ON CONFLICT DO NOTHING RETURNING id) \
             SELECT coalesce(array_agg(id), '{}') FROM kept"
        ));
        let row = self.bind(statement).fetch_one(connection).await?;
        row.try_get(0)
    }

    /// Writes the first link over the row that has its id.
    pub(super) async fn update(self, connection: &mut PgConnection) -> Result<(), sqlx::Error> {
        let statement = query(concat!(
            "UPDATE links SET (",
            columns!(),
            ") = (SELECT ",
            columns!(),
            " FROM ",
            new_rows!(),
            ") WHERE id = ($1::bigint[])[1]"
        ));
        self.bind(statement).execute(connection).await?;
        Ok(())
    }

    fn bind(self, statement: Query<'a, Postgres, PgArguments>) -> Query<'a, Postgres, PgArguments> {
        statement
            .bind(self.ids)
            .bind(self.codes)
            .bind(self.targets)
            .bind(self.redirect_statuses)
            .bind(self.revisions)
            .bind(self.valid_until)
            .bind(self.revoked_at)
            .bind(self.created_at)
            .bind(self.updated_at)
            .bind(self.created_by)
    }
}

/// Reads a link from a row with [`columns!`].
pub(super) fn read(row: &PgRow) -> Result<Link, sqlx::Error> {
    let bad = |column| move || invalid("links", column);
    let moment = |column: &'static str, millisecond: i64| {
        Timestamp::from_millisecond(millisecond).map_err(|_error| invalid("links", column))
    };
    let code: &str = row.try_get("code")?;
    let status: i32 = row.try_get("redirect_status")?;
    let revision: i64 = row.try_get("revision")?;
    let valid_until: Option<i64> = row.try_get("valid_until")?;
    let revoked_at: Option<i64> = row.try_get("revoked_at")?;
    Ok(Link {
        code: code.parse().map_err(|_error| invalid("links", "code"))?,
        target: Target::from_stored(row.try_get("target")?),
        redirect_status: u16::try_from(status)
            .ok()
            .and_then(RedirectStatus::from_code)
            .ok_or_else(bad("redirect_status"))?,
        revision: u64::try_from(revision).map_err(|_error| invalid("links", "revision"))?,
        expires_at: valid_until
            .map(|second| {
                Timestamp::from_second(second)
                    .ok()
                    .and_then(Expiry::at)
                    .ok_or_else(bad("valid_until"))
            })
            .transpose()?,
        revoked_at: revoked_at
            .map(|millisecond| moment("revoked_at", millisecond))
            .transpose()?,
        created_at: moment("created_at", row.try_get("created_at")?)?,
        updated_at: moment("updated_at", row.try_get("updated_at")?)?,
        created_by: row.try_get("created_by")?,
    })
}
