//! Links as rows: the one place that knows which columns they have in PostgreSQL.
//!
//! A column is in [`columns!`], in [`new_rows!`], in [`Rows`] and in [`read`].

use jiff::Timestamp;
use sqlx::Row as _;
use sqlx::postgres::PgArguments;
use sqlx::query::Query;
use sqlx::{Postgres, query};

use super::statements::Statements;
use crate::core::campaign::ParameterValues;
use crate::core::link::{Link, Second};
use crate::core::target::Target;
use crate::store::texts::of_tags;

pub(super) use crate::store::columns::link as read;
pub(super) use crate::store::links::columns;

/// The rows of [`Rows`]: the ids and the [`columns!`].
macro_rules! new_rows {
    () => {
        concat!(
            "unnest($1::bigint[], $2::text[], $3::text[], $4::bigint[], $5::text[], $6::integer[], \
             $7::boolean[], $8::bigint[], $9::bigint[], $10::bigint[], $11::bigint[], \
             $12::bigint[], $13::bigint[], $14::bigint[], $15::bigint[], $16::text[], \
             $17::text[], $18::text[], $19::text[]) AS new (id, ",
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
    targets: Vec<Option<&'a str>>,
    campaigns: Vec<Option<i64>>,
    parameters: Vec<Option<&'a str>>,
    redirect_statuses: Vec<i32>,
    forward_query: Vec<bool>,
    revisions: Vec<i64>,
    valid_since: Vec<Option<i64>>,
    valid_until: Vec<Option<i64>>,
    max_visits: Vec<Option<i64>>,
    paused_at: Vec<Option<i64>>,
    revoked_at: Vec<Option<i64>>,
    created_at: Vec<i64>,
    updated_at: Vec<i64>,
    created_by: Vec<&'a str>,
    external_ids: Vec<Option<&'a str>>,
    notes: Vec<Option<&'a str>>,
    tags: Vec<Option<String>>,
}

impl<'a> FromIterator<(i64, &'a Link)> for Rows<'a> {
    fn from_iter<I: IntoIterator<Item = (i64, &'a Link)>>(links: I) -> Self {
        let mut rows = Self::default();
        for (id, link) in links {
            let second = |second: Option<Second>| second.map(|second| second.get() as i64);
            rows.ids.push(id);
            rows.codes.push(link.code.as_str());
            let destination = &link.destination;
            rows.targets.push(destination.target().map(Target::as_str));
            rows.campaigns
                .push(destination.campaign().map(|id| id.get() as i64));
            rows.parameters
                .push(destination.values().map(ParameterValues::as_str));
            rows.redirect_statuses
                .push(link.redirect_status.code().into());
            rows.forward_query.push(link.forward_query);
            rows.revisions.push(link.revision as i64);
            rows.valid_since.push(second(link.valid_since));
            rows.valid_until.push(second(link.valid_until));
            rows.max_visits
                .push(link.max_visits.map(|visits| visits.get() as i64));
            rows.paused_at
                .push(link.paused_at.map(Timestamp::as_millisecond));
            rows.revoked_at
                .push(link.revoked_at.map(Timestamp::as_millisecond));
            rows.created_at.push(link.created_at.as_millisecond());
            rows.updated_at.push(link.updated_at.as_millisecond());
            rows.created_by.push(&link.created_by);
            rows.external_ids.push(link.external_id.as_deref());
            rows.notes.push(link.note.as_deref());
            rows.tags.push(of_tags(&link.tags));
        }
        rows
    }
}

impl<'a> Rows<'a> {
    /// Keeps the links whose ids are free; answers these ids in no order.
    pub(super) async fn insert(
        self,
        connection: &mut Statements<'_>,
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

    fn bind(self, statement: Query<'a, Postgres, PgArguments>) -> Query<'a, Postgres, PgArguments> {
        statement
            .bind(self.ids)
            .bind(self.codes)
            .bind(self.targets)
            .bind(self.campaigns)
            .bind(self.parameters)
            .bind(self.redirect_statuses)
            .bind(self.forward_query)
            .bind(self.revisions)
            .bind(self.valid_since)
            .bind(self.valid_until)
            .bind(self.max_visits)
            .bind(self.paused_at)
            .bind(self.revoked_at)
            .bind(self.created_at)
            .bind(self.updated_at)
            .bind(self.created_by)
            .bind(self.external_ids)
            .bind(self.notes)
            .bind(self.tags)
    }
}
