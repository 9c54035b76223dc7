//! Texts of statements, written once for both engines.
//!
//! Parameters are `$1`, `$2` and so on, which both engines read. A piece in braces holds what the
//! engines write differently: `{for SQLite|for PostgreSQL}`. Without a bar it is only for SQLite, so
//! that `{INDEXED BY links_by_campaign}` is a hint and `{|FOR UPDATE}` a lock of a row.

use super::Scheme;

/// A lock on the rows that a statement reads. SQLite has one writer, which needs none.
pub(super) const FOR_UPDATE: &str = "{| FOR UPDATE}";

/// Compares a column with the list of numbers in `$1`.
pub(super) const IN_NUMBERS: &str = "{ IN (SELECT value FROM json_each($1))| = ANY($1::bigint[])}";

/// Compares a column with the list of texts in `$1`.
pub(super) const IN_TEXTS: &str = "{ IN (SELECT value FROM json_each($1))| = ANY($1::text[])}";

/// Rows that are parameters from `$1` on ([`Db::table`](super::db::Db::table)), as a table with a name:
/// for each column its parameter, its name and its type in PostgreSQL.
macro_rules! table {
    ($table:literal: $p:literal $name:literal $type:literal
     $(, $ps:literal $names:literal $types:literal)* $(,)?) => {
        concat!(
            "{(SELECT value ->> ", $p, " AS ", $name $(, ", value ->> ", $ps, " AS ", $names)*,
            " FROM json_each($1)) AS ", $table,
            "|unnest($", $p, "::", $type, "[]" $(, ", $", $ps, "::", $types, "[]")*, ") AS ", $table,
            " (", $name $(, ", ", $names)*, ")}"
        )
    };
}
pub(super) use table;

/// Stands in the FROM of a statement of PostgreSQL whose transaction commits asynchronously.
///
/// The log is written in order: if a transaction is on the disk, all earlier ones are as well. So when a
/// link is acknowledged, its code is durably leased or taken out of the pool. Other codes may be drawn
/// again after a crash; the primary key of links prevents duplicates. Rows of the outbox that
/// reappear after a crash are published again.
macro_rules! relaxed {
    () => {
        "set_config('synchronous_commit', 'off', true) AS asynchronous"
    };
}
pub(super) use relaxed;

/// A statement's text for each engine.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sql {
    sqlite: &'static str,
    postgres: &'static str,
}

impl Sql {
    /// Wraps the output of [`render`].
    pub(super) const fn new(sqlite: &'static [u8], postgres: &'static [u8]) -> Self {
        match (str::from_utf8(sqlite), str::from_utf8(postgres)) {
            (Ok(sqlite), Ok(postgres)) => Self { sqlite, postgres },
            // At compile time: pieces are cut at ASCII characters.
            _ => panic!("a statement is not UTF-8"),
        }
    }

    /// The text for an engine.
    pub(super) fn of(self, scheme: Scheme) -> &'static str {
        match scheme {
            Scheme::Sqlite => self.sqlite,
            Scheme::Postgres => self.postgres,
        }
    }
}

/// Joins pieces of a statement at compile time.
macro_rules! sql {
    ($($piece:expr),+ $(,)?) => { sql!(&[]; $($piece),+) };
    // With the pieces that it begins with in a slice.
    ($begin:expr; $($piece:expr),* $(,)?) => {{
        use $crate::Scheme::{Postgres, Sqlite};
        use $crate::sql::{Sql, length, render};
        const PIECES: [&[&str]; 2] = [$begin, &[$($piece),*]];
        const SQLITE: [u8; length(&PIECES, Sqlite)] = render(&PIECES, Sqlite);
        const POSTGRES: [u8; length(&PIECES, Postgres)] = render(&PIECES, Postgres);
        const SQL: Sql = Sql::new(&SQLITE, &POSTGRES);
        SQL
    }};
}
pub(super) use sql;

/// Counts the bytes of the output of [`render`].
pub(super) const fn length(pieces: &[&[&str]; 2], scheme: Scheme) -> usize {
    write(pieces, scheme, &mut [])
}

/// Joins the pieces for one engine.
pub(super) const fn render<const N: usize>(pieces: &[&[&str]; 2], scheme: Scheme) -> [u8; N] {
    let mut text = [0; N];
    write(pieces, scheme, &mut text);
    text
}

/// Writes as much as fits; returns the length of the whole.
const fn write(pieces: &[&[&str]; 2], scheme: Scheme, text: &mut [u8]) -> usize {
    let (mut piece, mut length) = (0, 0);
    // The engine that the bytes are for.
    let mut only = None;
    while piece < pieces[0].len() + pieces[1].len() {
        let bytes = match piece.checked_sub(pieces[0].len()) {
            None => pieces[0][piece].as_bytes(),
            Some(piece) => pieces[1][piece].as_bytes(),
        };
        let mut place = 0;
        while place < bytes.len() {
            match (bytes[place], only) {
                (b'{', None) => only = Some(Scheme::Sqlite),
                (b'|', Some(Scheme::Sqlite)) => only = Some(Scheme::Postgres),
                (b'}', Some(_)) => only = None,
                (_, Some(Scheme::Sqlite)) if matches!(scheme, Scheme::Postgres) => {}
                (_, Some(Scheme::Postgres)) if matches!(scheme, Scheme::Sqlite) => {}
                (byte, _) => {
                    if length < text.len() {
                        text[length] = byte;
                    }
                    length += 1;
                }
            }
            place += 1;
        }
        piece += 1;
    }
    length
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn braces_hold_what_the_engines_write_differently() {
        const TABLE: &str = "links {INDEXED BY a}";
        let sql = sql!(
            "SELECT ü || x FROM ",
            TABLE,
            "{ LIMIT 1| LIMIT 2}",
            FOR_UPDATE
        );
        let sqlite = "SELECT ü || x FROM links INDEXED BY a LIMIT 1";
        assert_eq!(sql.of(Scheme::Sqlite), sqlite);
        let postgres = "SELECT ü || x FROM links  LIMIT 2 FOR UPDATE";
        assert_eq!(sql.of(Scheme::Postgres), postgres);
    }
}
