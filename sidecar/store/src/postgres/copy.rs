//! Rows on their way into a table, in the binary format of `COPY`: far cheaper for the server than
//! any `INSERT`. <https://www.postgresql.org/docs/current/sql-copy.html#id-1.9.3.55.9.4>

use crate::db::{Connection, Db};
use crate::sql::Sql;
use crate::value::Value;

/// Beginning of a stream: the signature, no flags, and no extension of the header.
const HEADER: &[u8; 19] = b"PGCOPY\n\xff\r\n\0\0\0\0\0\0\0\0\0";

/// End of a stream: no row has this number of columns.
const TRAILER: [u8; 2] = (-1_i16).to_be_bytes();

/// Writes the first columns of rows with a `COPY … FROM STDIN (FORMAT binary)`. The values are in the
/// order of the columns that the statement names; numbers are `bigint` but for some that are `integer`.
pub(crate) async fn copy<'a, const N: usize>(
    db: &mut Db<'_>,
    statement: Sql,
    columns: usize,
    integers: &[usize],
    rows: impl Iterator<Item = [Value<'a>; N]>,
) -> Result<(), sqlx::Error> {
    let Connection::Postgres(connection, _) = &mut db.connection else {
        return Ok(());
    };
    let mut bytes = HEADER.to_vec();
    for row in rows {
        bytes.extend_from_slice(&(columns as i16).to_be_bytes());
        for (place, value) in row.iter().take(columns).enumerate() {
            match value {
                Value::Number(Some(number)) if integers.contains(&place) => {
                    push(&mut bytes, &(*number as i32).to_be_bytes());
                }
                Value::Number(Some(number)) => push(&mut bytes, &number.to_be_bytes()),
                // The server refuses a NUL in a text.
                Value::Text(Some(text)) => push(&mut bytes, text.as_bytes()),
                Value::Bytes(Some(value)) => push(&mut bytes, value),
                _ => bytes.extend_from_slice(&(-1_i32).to_be_bytes()),
            }
        }
    }
    bytes.extend_from_slice(&TRAILER);
    let mut stream = connection
        .copy_in_raw(statement.of(crate::Scheme::Postgres))
        .await?;
    stream.send(bytes).await?;
    stream.finish().await?;
    Ok(())
}

/// Adds a column that is not NULL: its length and its value.
fn push(bytes: &mut Vec<u8>, value: &[u8]) {
    // The stored values of a visit are bounded by some kilobytes.
    let length = i32::try_from(value.len()).unwrap_or(i32::MAX);
    bytes.extend_from_slice(&length.to_be_bytes());
    bytes.extend_from_slice(value);
}
