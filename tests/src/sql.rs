//! The sidecar's database, for tests that write rows that no sidecar would.

use std::path::PathBuf;
use std::process::Command;

use crate::postgres::Postgres;
use crate::stack::Stack;

/// The database of a sidecar.
#[derive(Debug)]
pub enum Sql<'a> {
    /// A file of SQLite.
    File(PathBuf),
    /// A server.
    Server(&'a Postgres),
}

impl<'a> Sql<'a> {
    /// The database of a stack that runs on a PostgreSQL, or on a file of its own.
    pub fn of(stack: &Stack, postgres: Option<&'a Postgres>) -> Self {
        match postgres {
            Some(postgres) => Self::Server(postgres),
            None => Self::File(stack.directory().join("sidecar/links.db")),
        }
    }

    /// Has statements run, and returns what the last one answers: `|` between columns.
    ///
    /// # Panics
    /// When they are not run.
    pub fn query(&self, statements: &str) -> String {
        let path = match self {
            Self::Server(postgres) => return postgres.query(statements),
            Self::File(path) => path,
        };
        let output = Command::new("sqlite3")
            .args(["-batch", "-bail", "-cmd", ".timeout 20000"])
            .arg(path)
            .arg(statements)
            .output()
            .expect("sqlite3 can be run");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{statements}: {said}");
        let answer = String::from_utf8(output.stdout).expect("text");
        answer.trim().to_owned()
    }

    /// The first number of the answer.
    ///
    /// # Panics
    /// When there is none.
    pub fn number(&self, statement: &str) -> i64 {
        let answer = self.query(statement);
        answer
            .parse()
            .unwrap_or_else(|_| panic!("{statement}: {answer:?}"))
    }

    /// Bytes of a value, so many times, as an expression.
    pub fn bytes(&self, byte: u8, count: usize) -> String {
        let digits = format!("{byte:02x}").repeat(count);
        match self {
            Self::Server(_) => format!("decode('{digits}', 'hex')"),
            Self::File(_) => format!("x'{digits}'"),
        }
    }
}
