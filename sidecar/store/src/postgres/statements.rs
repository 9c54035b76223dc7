//! Statements that say in a comment which request they are for, where an operator meets them:
//! in the server's log and in `pg_stat_activity`.
//!
//! The comment is that of sqlcommenter (<https://google.github.io/sqlcommenter/spec/>). A statement
//! with one is like no other, so it is prepared for this once: only those of sampled requests have
//! any.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use futures_util::stream::BoxStream;
use shortlink_core::trace;
use sqlx::error::BoxDynError;
use sqlx::postgres::{PgArguments, PgQueryResult, PgRow, PgStatement, PgTypeInfo};
use sqlx::{
    AssertSqlSafe, Either, Error, Execute, Executor, PgConnection, Postgres, SqlSafeStr, SqlStr,
};

/// A connection whose statements have a comment.
#[derive(Debug)]
pub(crate) struct Statements<'c> {
    connection: &'c mut PgConnection,
    comment: Option<Comment>,
}

/// Text of a comment.
#[derive(Clone, Debug)]
pub(crate) struct Comment(Arc<str>);

impl Comment {
    /// Returns a comment with the trace of the current request, if it is sampled.
    pub(crate) fn current() -> Option<Self> {
        let trace = trace::current().filter(trace::Trace::is_sampled)?;
        // Digits and hyphens: nothing that could end the comment, or must be escaped in it.
        Some(Self(format!("traceparent='{trace}'").into()))
    }
}

impl<'c> Statements<'c> {
    /// Runs statements on a connection, with a comment if there is one.
    pub(crate) fn new(connection: &'c mut PgConnection, comment: Option<Comment>) -> Self {
        Self {
            connection,
            comment,
        }
    }

    /// Returns the connection itself, for operations that are not statements.
    pub(super) fn connection(&mut self) -> &mut PgConnection {
        self.connection
    }
}

impl<'s> Executor<'s> for &'s mut Statements<'_> {
    type Database = Postgres;

    fn fetch_many<'e, 'q: 'e, E>(
        self,
        query: E,
    ) -> BoxStream<'e, Result<Either<PgQueryResult, PgRow>, Error>>
    where
        's: 'e,
        E: 'q + Execute<'q, Postgres>,
    {
        match self.comment.clone() {
            None => self.connection.fetch_many(query),
            Some(comment) => self.connection.fetch_many(Commented { query, comment }),
        }
    }

    fn fetch_optional<'e, 'q: 'e, E>(self, query: E) -> BoxFuture<'e, Result<Option<PgRow>, Error>>
    where
        's: 'e,
        E: 'q + Execute<'q, Postgres>,
    {
        match self.comment.clone() {
            None => self.connection.fetch_optional(query),
            Some(comment) => self.connection.fetch_optional(Commented { query, comment }),
        }
    }

    fn prepare_with<'e>(
        self,
        sql: SqlStr,
        parameters: &'e [PgTypeInfo],
    ) -> BoxFuture<'e, Result<PgStatement, Error>>
    where
        's: 'e,
    {
        self.connection.prepare_with(sql, parameters)
    }
}

/// A query with a comment behind its statement.
struct Commented<E> {
    query: E,
    comment: Comment,
}

impl<'q, E: Execute<'q, Postgres>> Execute<'q, Postgres> for Commented<E> {
    fn sql(self) -> SqlStr {
        let Self { query, comment } = self;
        let statement = format!("{} /*{}*/", query.sql().as_str(), comment.0);
        AssertSqlSafe(statement).into_sql_str()
    }

    fn statement(&self) -> Option<&PgStatement> {
        None
    }

    fn take_arguments(&mut self) -> Result<Option<PgArguments>, BoxDynError> {
        self.query.take_arguments()
    }

    fn persistent(&self) -> bool {
        false
    }
}
