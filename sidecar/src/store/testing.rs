//! Faults in a database, for the tests of other modules.

use sqlx::{Connection, SqliteConnection};

/// Lets claims of jobs fail in the SQLite database of a URL, or succeed again.
pub(crate) async fn break_claims(url: &str, is_broken: bool) {
    let mut connection = SqliteConnection::connect(url)
        .await
        .expect("a good database");
    let change = if is_broken {
        "CREATE TRIGGER broken BEFORE INSERT ON settings WHEN NEW.name LIKE 'claim:%' \
         BEGIN SELECT RAISE(ABORT, 'broken'); END"
    } else {
        "DROP TRIGGER broken"
    };
    let changed = sqlx::query(change).execute(&mut connection).await;
    changed.expect("a good database");
}
