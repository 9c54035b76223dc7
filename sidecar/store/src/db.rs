//! A connection to either engine, and the statements on it.

use futures_util::future::BoxFuture;
use shortlink_core::codes::numbering::Numbering;
use shortlink_core::trace;
use sqlx::postgres::{PgArguments, PgConnection};
use sqlx::query::Query;
use sqlx::sqlite::{SqliteArguments, SqliteConnection};
use sqlx::{AssertSqlSafe, Postgres, Sqlite};

use super::Scheme;
use super::sql::{Sql, sql};
use super::value::{self, Row, Value};

/// Numbers of rows that a statement of SQLite inserts. Only few sizes are worth a prepared statement, so
/// rows go into the largest one that they fill.
pub(super) const SIZES: [usize; 5] = [256, 64, 16, 4, 1];

/// A connection, often inside a transaction.
pub(super) struct Db<'c> {
    pub(super) connection: Connection<'c>,
    /// The numbering of codes in this database.
    pub(super) numbering: &'c Numbering,
}

/// A connection to either engine.
pub(super) enum Connection<'c> {
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

    /// The text so far.
    #[cfg(test)]
    pub(super) fn text(&self) -> &str {
        &self.text
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
    /// Wraps a connection to SQLite.
    pub(super) fn sqlite(connection: &'c mut SqliteConnection, numbering: &'c Numbering) -> Self {
        Self {
            connection: Connection::Sqlite(connection),
            numbering,
        }
    }

    /// Wraps a connection to PostgreSQL. Statements of a sampled request have a comment that names
    /// it, which an operator sees in the server's log and in `pg_stat_activity`: that of
    /// sqlcommenter (<https://google.github.io/sqlcommenter/spec/>).
    pub(super) fn postgres(connection: &'c mut PgConnection, numbering: &'c Numbering) -> Self {
        let trace = trace::current().filter(trace::Trace::is_sampled);
        // Digits and hyphens: nothing that could end the comment, or must be escaped in it.
        let comment = trace.map(|trace| format!(" /*traceparent='{trace}'*/"));
        Self {
            connection: Connection::Postgres(connection, comment),
            numbering,
        }
    }

    /// The engine.
    pub(super) fn scheme(&self) -> Scheme {
        match &self.connection {
            Connection::Sqlite(_) => Scheme::Sqlite,
            Connection::Postgres(..) => Scheme::Postgres,
        }
    }

    /// Begins a statement that is put together.
    pub(super) fn statement<'a>(&self, sql: Sql) -> Statement<'a> {
        Statement::new(self.scheme(), sql)
    }

    /// The values of rows, one at least, that a statement reads as a [`table!`](super::sql::table).
    pub(super) fn table<'a, const N: usize>(
        &self,
        rows: impl ExactSizeIterator<Item = [Value<'a>; N]>,
    ) -> Vec<Value<'a>> {
        match self.scheme() {
            Scheme::Sqlite => value::json(rows),
            Scheme::Postgres => value::lists(rows),
        }
    }

    /// Runs a statement with rows that it reads as a [`table!`](super::sql::table), and with other
    /// values behind them; does nothing without rows. Returns the number of changed rows.
    pub(super) async fn run_table<'a, const N: usize>(
        &mut self,
        sql: Sql,
        rows: impl ExactSizeIterator<Item = [Value<'a>; N]>,
        others: &[Value<'a>],
    ) -> Result<u64, sqlx::Error> {
        if rows.len() == 0 {
            return Ok(0);
        }
        let mut values = self.table(rows);
        values.extend_from_slice(others);
        self.run(sql, &values).await
    }

    /// Deletes the rows of a table (`kept`) with some keys, many with one statement, if they meet what is behind the keys.
    /// Each part of a key is a column with its type in PostgreSQL; an index of SQLite has all of them.
    pub(super) async fn delete<'a, const N: usize>(
        &mut self,
        from: Sql,
        columns: [(Sql, &str); N],
        keys: impl ExactSizeIterator<Item = [Value<'a>; N]>,
        end: Sql,
    ) -> Result<(), sqlx::Error> {
        self.delete_returning(from, columns, keys, end, |_row| Ok(()))
            .await?;
        Ok(())
    }

    /// Deletes rows as [`Db::delete`] does; returns what `end` returns of them, converted by `read`.
    pub(super) async fn delete_returning<'a, const N: usize, T>(
        &mut self,
        from: Sql,
        columns: [(Sql, &str); N],
        keys: impl ExactSizeIterator<Item = [Value<'a>; N]>,
        end: Sql,
        read: impl Fn(&Row) -> Result<T, sqlx::Error>,
    ) -> Result<Vec<T>, sqlx::Error> {
        let scheme = self.scheme();
        let (from, end) = (from.of(scheme), end.of(scheme));
        let names = columns.map(|(name, _)| name.of(scheme));
        if keys.len() == 0 {
            return Ok(Vec::new());
        }
        if scheme == Scheme::Postgres {
            let parts: Vec<String> = (1..=N).map(|part| format!("key{part}")).collect();
            let lists = columns.iter().zip(1..);
            let lists: Vec<String> = lists
                .map(|((_, name), part)| format!("${part}::{name}[]"))
                .collect();
            let are_equal = names.iter().zip(&parts);
            let are_equal: Vec<String> = are_equal
                .map(|(name, part)| format!("kept.{name} = {part}"))
                .collect();
            let text = format!(
                "{from} AS kept USING unnest({}) AS gone ({}) WHERE {}{end}",
                lists.join(", "),
                parts.join(", "),
                are_equal.join(" AND ")
            );
            return self
                .all(Text::Built(&text), &value::lists(keys), read)
                .await;
        }
        // SQLite looks up each key by the index, but would walk through a table for a list of keys.
        let key = names.map(|name| format!("kept.{name} = ?")).join(" AND ");
        let mut deleted = Vec::new();
        for some in in_sizes(keys, &SIZES[1..]) {
            let are_equal = vec![key.as_str(); some.len() / N].join(" OR ");
            let text = format!("{from} AS kept WHERE ({are_equal}){end}");
            let rows: Vec<T> = self.all(Text::Built(&text), &some, &read).await?;
            deleted.extend(rows);
        }
        Ok(deleted)
    }

    /// Inserts rows, many with one statement, between whose parts they are; `types` are those of
    /// the columns in PostgreSQL.
    pub(super) async fn insert<'a, const N: usize>(
        &mut self,
        into: Sql,
        types: [&str; N],
        end: Sql,
        rows: impl ExactSizeIterator<Item = [Value<'a>; N]>,
    ) -> Result<(), sqlx::Error> {
        let scheme = self.scheme();
        let (into, end) = (into.of(scheme), end.of(scheme));
        if rows.len() == 0 {
            return Ok(());
        }
        if scheme == Scheme::Postgres {
            let types = types.iter().enumerate();
            let lists = types.map(|(place, name)| format!("${}::{name}[]", place + 1));
            let lists = lists.collect::<Vec<_>>().join(", ");
            let text = format!("{into} SELECT * FROM unnest({lists}){end}");
            self.run(Text::Built(&text), &value::lists(rows)).await?;
            return Ok(());
        }
        // Without numbers: for a parameter that has one SQLite walks through the names of all.
        let row = format!("(?{})", ", ?".repeat(N - 1));
        for some in in_sizes(rows, &SIZES) {
            let places = vec![row.as_str(); some.len() / N].join(", ");
            let text = format!("{into} VALUES {places}{end}");
            self.run(Text::Built(&text), &some).await?;
        }
        Ok(())
    }

    /// Runs statements without parameters, which are not prepared.
    pub(super) async fn run_raw(&mut self, text: String) -> Result<(), sqlx::Error> {
        self.raw_rows(text).await?;
        Ok(())
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

    /// Returns the rows of a statement that asks for the order of an index, converted by `read`; there are at most nine
    /// values. PostgreSQL does not sort: while its statistics know hardly any such rows, it would read all of them, by
    /// another index, for each page.
    pub(super) async fn in_order<T, C: FromIterator<T>, const N: usize>(
        &mut self,
        sql: Sql,
        values: [i64; N],
        read: impl Fn(&Row) -> Result<T, sqlx::Error>,
    ) -> Result<C, sqlx::Error> {
        let rows = match self.scheme() {
            Scheme::Sqlite => self.rows(sql.into(), &values.map(Value::from)).await?,
            Scheme::Postgres => self.raw_rows(unsorted(sql, &values)).await?,
        };
        rows.iter().map(read).collect()
    }

    /// Returns the row that a statement always has, converted by `read`.
    pub(super) async fn get<T>(
        &mut self,
        text: impl Into<Text<'_>>,
        values: &[Value<'_>],
        read: impl Fn(&Row) -> Result<T, sqlx::Error>,
    ) -> Result<T, sqlx::Error> {
        let row = self.one(text, values, read).await?;
        row.ok_or(sqlx::Error::RowNotFound)
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
        self.execute(text.into(), values).await
    }

    /// Takes an advisory lock of PostgreSQL until the transaction ends; its later statements see the commit of the
    /// transaction that held the lock before. SQLite has one writer, which needs none.
    pub(super) async fn lock(&mut self, key: i64) -> Result<(), sqlx::Error> {
        self.take_lock(sql!("SELECT pg_advisory_xact_lock($1)"), key)
            .await
    }

    /// As [`Db::lock`], together with others that share the lock.
    pub(super) async fn share_lock(&mut self, key: i64) -> Result<(), sqlx::Error> {
        self.take_lock(sql!("SELECT pg_advisory_xact_lock_shared($1)"), key)
            .await
    }

    async fn take_lock(&mut self, sql: Sql, key: i64) -> Result<(), sqlx::Error> {
        if self.scheme() == Scheme::Postgres {
            self.run(sql, &[key.into()]).await?;
        }
        Ok(())
    }

    // These are boxed, so that they are compiled here, and not in all crates that use the store.

    fn execute<'a>(
        &'a mut self,
        text: Text<'a>,
        values: &'a [Value<'a>],
    ) -> BoxFuture<'a, Result<u64, sqlx::Error>> {
        Box::pin(async move {
            Ok(match &mut self.connection {
                Connection::Sqlite(connection) => {
                    let done = sqlite(text, values)?.execute(&mut **connection).await?;
                    done.rows_affected()
                }
                Connection::Postgres(connection, comment) => {
                    let done = postgres(text, values, comment.as_deref())?;
                    done.execute(&mut **connection).await?.rows_affected()
                }
            })
        })
    }

    fn rows<'a>(
        &'a mut self,
        text: Text<'a>,
        values: &'a [Value<'a>],
    ) -> BoxFuture<'a, Result<Vec<Row>, sqlx::Error>> {
        Box::pin(async move {
            Ok(match &mut self.connection {
                Connection::Sqlite(connection) => {
                    let rows = sqlite(text, values)?.fetch_all(&mut **connection).await?;
                    rows.into_iter().map(Row::Sqlite).collect()
                }
                Connection::Postgres(connection, comment) => {
                    let rows = postgres(text, values, comment.as_deref())?;
                    let rows = rows.fetch_all(&mut **connection).await?;
                    rows.into_iter().map(Row::Postgres).collect()
                }
            })
        })
    }

    fn raw_rows(&mut self, text: String) -> BoxFuture<'_, Result<Vec<Row>, sqlx::Error>> {
        Box::pin(async move {
            Ok(match &mut self.connection {
                Connection::Sqlite(connection) => {
                    let rows = sqlx::raw_sql(AssertSqlSafe(text));
                    let rows = rows.fetch_all(&mut **connection).await?;
                    rows.into_iter().map(Row::Sqlite).collect()
                }
                Connection::Postgres(connection, comment) => {
                    let text = text + comment.as_deref().unwrap_or_default();
                    let rows = sqlx::raw_sql(AssertSqlSafe(text));
                    let rows = rows.fetch_all(&mut **connection).await?;
                    rows.into_iter().map(Row::Postgres).collect()
                }
            })
        })
    }

    fn row<'a>(
        &'a mut self,
        text: Text<'a>,
        values: &'a [Value<'a>],
    ) -> BoxFuture<'a, Result<Option<Row>, sqlx::Error>> {
        Box::pin(async move {
            Ok(match &mut self.connection {
                Connection::Sqlite(connection) => {
                    let row = sqlite(text, values)?.fetch_optional(&mut **connection);
                    row.await?.map(Row::Sqlite)
                }
                Connection::Postgres(connection, comment) => {
                    let row = postgres(text, values, comment.as_deref())?;
                    row.fetch_optional(&mut **connection)
                        .await?
                        .map(Row::Postgres)
                }
            })
        })
    }
}

/// A statement of PostgreSQL, with its values, that does not sort where it can do without. Statements that are sent together
/// are one transaction, unless there is one already, so that the setting ends with it and costs no round trip.
pub(super) fn unsorted(sql: Sql, values: &[i64]) -> String {
    let mut text = sql.of(Scheme::Postgres).to_owned();
    for (place, value) in values.iter().enumerate() {
        text = text.replace(&format!("${}", place + 1), &value.to_string());
    }
    format!("SET LOCAL enable_sort = off; {text}; SET LOCAL enable_sort TO DEFAULT")
}

/// The values of rows, as many of these together as one of some falling sizes, so that there are few texts of statements.
fn in_sizes<'a, const N: usize>(
    mut rows: impl ExactSizeIterator<Item = [Value<'a>; N]>,
    sizes: &[usize],
) -> impl Iterator<Item = Vec<Value<'a>>> {
    std::iter::from_fn(move || {
        let size = sizes.iter().find(|size| **size <= rows.len())?;
        Some(rows.by_ref().take(*size).flatten().collect())
    })
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
