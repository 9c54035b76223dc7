//! Rows on their way into a table, in the binary format of `COPY`: far cheaper for the server than
//! any `INSERT`. <https://www.postgresql.org/docs/current/sql-copy.html#id-1.9.3.55.9.4>
use crate::postgres::statements::Statements;

/// Beginning of a stream: the signature, no flags, and no extension of the header.
const HEADER: &[u8; 19] = b"PGCOPY\n\xff\r\n\0\0\0\0\0\0\0\0\0";

/// End of a stream: no row has this number of columns.
const TRAILER: [u8; 2] = (-1_i16).to_be_bytes();

/// Rows to be written. Each column is given in the order of the table's columns that the statement
/// names, and in their types.
pub(super) struct CopyRows {
    bytes: Vec<u8>,
    columns: i16,
}

impl CopyRows {
    /// Begins without rows; each row has this number of columns.
    pub(super) fn new(columns: i16) -> Self {
        Self {
            bytes: HEADER.to_vec(),
            columns,
        }
    }

    /// Begins a row: its columns follow.
    pub(super) fn row(&mut self) -> &mut Self {
        self.bytes.extend_from_slice(&self.columns.to_be_bytes());
        self
    }

    /// A `bigint`.
    pub(super) fn long(&mut self, value: impl Into<Option<i64>>) -> &mut Self {
        self.column(value.into().map(i64::to_be_bytes))
    }

    /// An `integer`.
    pub(super) fn int(&mut self, value: impl Into<Option<i32>>) -> &mut Self {
        self.column(value.into().map(i32::to_be_bytes))
    }

    /// A `text`. The server refuses a NUL in it.
    pub(super) fn text<'a>(&mut self, value: impl Into<Option<&'a str>>) -> &mut Self {
        self.column(value.into())
    }

    /// A `bytea`.
    pub(super) fn bytes(&mut self, value: Option<&[u8]>) -> &mut Self {
        self.column(value)
    }

    /// Adds a column: its length and its value, or NULL.
    fn column(&mut self, value: Option<impl AsRef<[u8]>>) -> &mut Self {
        let Some(value) = value else {
            self.bytes.extend_from_slice(&(-1_i32).to_be_bytes());
            return self;
        };
        let value = value.as_ref();
        // The stored values of a visit are bounded by some kilobytes.
        let length = i32::try_from(value.len()).unwrap_or(i32::MAX);
        self.bytes.extend_from_slice(&length.to_be_bytes());
        self.bytes.extend_from_slice(value);
        self
    }

    /// Writes the rows with a `COPY … FROM STDIN (FORMAT binary)`.
    pub(super) async fn send(
        mut self,
        connection: &mut Statements<'_>,
        statement: &str,
    ) -> Result<(), sqlx::Error> {
        self.bytes.extend_from_slice(&TRAILER);
        let mut stream = connection.connection().copy_in_raw(statement).await?;
        stream.send(self.bytes).await?;
        stream.finish().await?;
        Ok(())
    }
}
