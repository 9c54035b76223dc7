//! A connection to either engine, and the statements on it.

use shortlink_core::trace;
use sqlx::postgres::{PgArguments, PgConnection};
use sqlx::query::Query;
use sqlx::sqlite::{SqliteArguments, SqliteConnection};
use sqlx::{AssertSqlSafe, Postgres, Sqlite};

use super::Scheme;
use super::sql::Sql;
use super::value::{Row, Value};

/// A connection, often inside a transaction.
#[derive(Debug)]
pub(super) enum Db<'c> {
    /// To SQLite.
    Sqlite(&'c mut SqliteConnection),
    /// To PostgreSQL, with a comment for its statements.
    Postgres(&'c mut PgConnection, Option<String>),
}

/// A statement's text: one of the program's, or one that was put together ([`Statement`]).
#[derive(Clone, Copy, Debug)]
pub(super) enum Text<'t> {
    Fixed(Sql),
    Built(&'t str),
}

impl From<Sql> for Text<'_> {
    fn from(sql: Sql) -> Self {
        Self::Fixed(sql)
    }
}

impl<'t> From<&'t Statement<'_>> for Text<'t> {
    fn from(statement: &'t Statement<'_>) -> Self {
        Self::Built(&statement.text)
    }
}

/// A statement that is built from the parameters of a request.
#[derive(Debug)]
pub(super) struct Statement<'a> {
    scheme: Scheme,
    text: String,
    pub(super) values: Vec<Value<'a>>,
}

impl<'a> Statement<'a> {
    /// Begins with a text.
    pub(super) fn new(scheme: Scheme, sql: Sql) -> Self {
        Self {
            scheme,
            text: sql.of(scheme).to_owned(),
            values: Vec::new(),
        }
    }

    /// Adds a text.
    pub(super) fn push(&mut self, sql: Sql) -> &mut Self {
        self.text.push_str(sql.of(self.scheme));
        self
    }

    /// Adds a parameter.
    pub(super) fn bind(&mut self, value: impl Into<Value<'a>>) -> &mut Self {
        self.values.push(value.into());
        self.text.push('$');
        self.text.push_str(&self.values.len().to_string());
        self
    }
}

impl<'c> Db<'c> {
    /// Wraps a connection to PostgreSQL. Statements of a sampled request have a comment that names
    /// it, which an operator sees in the server's log and in `pg_stat_activity`: that of
    /// sqlcommenter (<https://google.github.io/sqlcommenter/spec/>).
    pub(super) fn postgres(connection: &'c mut PgConnection) -> Self {
        let trace = trace::current().filter(trace::Trace::is_sampled);
        // Digits and hyphens: nothing that could end the comment, or must be escaped in it.
        let comment = trace.map(|trace| format!(" /*traceparent='{trace}'*/"));
        Self::Postgres(connection, comment)
    }

    /// The engine.
    pub(super) fn scheme(&self) -> Scheme {
        match self {
            Self::Sqlite(_) => Scheme::Sqlite,
            Self::Postgres(..) => Scheme::Postgres,
        }
    }

    /// Begins a statement that is put together.
    pub(super) fn statement<'a>(&self, sql: Sql) -> Statement<'a> {
        Statement::new(self.scheme(), sql)
    }

    /// Returns the rows of a statement, converted by `read`.
    pub(super) async fn all<T, C: FromIterator<T>>(
        &mut self,
        text: impl Into<Text<'_>>,
        values: &[Value<'_>],
        read: impl Fn(&Row) -> Result<T, sqlx::Error>,
    ) -> Result<C, sqlx::Error> {
        let rows = self.rows(text.into(), values).await?;
        rows.iter().map(read).collect()
    }

    /// Returns the first row of a statement, converted by `read`.
    pub(super) async fn one<T>(
        &mut self,
        text: impl Into<Text<'_>>,
        values: &[Value<'_>],
        read: impl Fn(&Row) -> Result<T, sqlx::Error>,
    ) -> Result<Option<T>, sqlx::Error> {
        let row = self.row(text.into(), values).await?;
        row.as_ref().map(read).transpose()
    }

    /// Runs a statement; returns the number of changed rows.
    pub(super) async fn run(
        &mut self,
        text: impl Into<Text<'_>>,
        values: &[Value<'_>],
    ) -> Result<u64, sqlx::Error> {
        let text = text.into();
        Ok(match self {
            Self::Sqlite(connection) => {
                let done = sqlite(text, values)?.execute(&mut **connection).await?;
                done.rows_affected()
            }
            Self::Postgres(connection, comment) => {
                let done = postgres(text, values, comment.as_deref())?;
                done.execute(&mut **connection).await?.rows_affected()
            }
        })
    }

    async fn rows(
        &mut self,
        text: Text<'_>,
        values: &[Value<'_>],
    ) -> Result<Vec<Row>, sqlx::Error> {
        Ok(match self {
            Self::Sqlite(connection) => {
                let rows = sqlite(text, values)?.fetch_all(&mut **connection).await?;
                rows.into_iter().map(Row::Sqlite).collect()
            }
            Self::Postgres(connection, comment) => {
                let rows = postgres(text, values, comment.as_deref())?;
                let rows = rows.fetch_all(&mut **connection).await?;
                rows.into_iter().map(Row::Postgres).collect()
            }
        })
    }

    async fn row(
        &mut self,
        text: Text<'_>,
        values: &[Value<'_>],
    ) -> Result<Option<Row>, sqlx::Error> {
        Ok(match self {
            Self::Sqlite(connection) => {
                let row = sqlite(text, values)?.fetch_optional(&mut **connection);
                row.await?.map(Row::Sqlite)
            }
            Self::Postgres(connection, comment) => {
                let row = postgres(text, values, comment.as_deref())?;
                row.fetch_optional(&mut **connection)
                    .await?
                    .map(Row::Postgres)
            }
        })
    }
}

fn sqlite(
    text: Text<'_>,
    values: &[Value<'_>],
) -> Result<Query<'static, Sqlite, SqliteArguments>, sqlx::Error> {
    let mut arguments = SqliteArguments::default();
    for value in values {
        let added = value.add_to_sqlite(&mut arguments);
        added.map_err(sqlx::Error::Encode)?;
    }
    Ok(match text {
        Text::Fixed(sql) => sqlx::query_with(sql.of(Scheme::Sqlite), arguments),
        Text::Built(text) => sqlx::query_with(AssertSqlSafe(text.to_owned()), arguments),
    })
}

/// A statement with a comment is like no other, so it is prepared for this once.
fn postgres(
    text: Text<'_>,
    values: &[Value<'_>],
    comment: Option<&str>,
) -> Result<Query<'static, Postgres, PgArguments>, sqlx::Error> {
    let mut arguments = PgArguments::default();
    for value in values {
        let added = value.add_to_postgres(&mut arguments);
        added.map_err(sqlx::Error::Encode)?;
    }
    let fixed = |text: &str| match comment {
        Some(comment) => AssertSqlSafe(format!("{text}{comment}")),
        None => AssertSqlSafe(text.to_owned()),
    };
    let query = match (text, comment) {
        (Text::Fixed(sql), None) => sqlx::query_with(sql.of(Scheme::Postgres), arguments),
        (Text::Fixed(sql), Some(_)) => sqlx::query_with(fixed(sql.of(Scheme::Postgres)), arguments),
        (Text::Built(text), _) => sqlx::query_with(fixed(text), arguments),
    };
    Ok(query.persistent(comment.is_none()))
}
