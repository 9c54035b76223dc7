//! Values that statements take, and rows that they answer with, of both engines.

use std::borrow::Cow;

use jiff::Timestamp;
use shortlink_core::codes::strategy::CodeOrigin;
use shortlink_core::link::{Second, UploadId};
use sqlx::error::{BoxDynError, UnexpectedNullError};
use sqlx::postgres::{PgArguments, PgRow};
use sqlx::sqlite::{SqliteArguments, SqliteRow};
use sqlx::{Arguments as _, Row as _, TypeInfo as _, ValueRef as _};
use vocabulary::{CampaignId, Code};

/// A value for a parameter. Numbers have 64 bits; PostgreSQL stores them in narrower columns, too.
#[derive(Clone, Debug)]
pub(super) enum Value<'a> {
    Number(Option<i64>),
    Text(Option<Cow<'a, str>>),
    Truth(bool),
    Bytes(Option<Cow<'a, [u8]>>),
    /// A list: an array in PostgreSQL, JSON in SQLite, which reads it with `json_each`.
    Numbers(Vec<Option<i64>>),
    /// As [`Self::Numbers`].
    Texts(Vec<Option<Cow<'a, str>>>),
    /// As [`Self::Numbers`].
    Truths(Vec<bool>),
    /// As [`Self::Numbers`], in hexadecimal digits, which SQLite reads with `unhex`.
    Blobs(Vec<Cow<'a, [u8]>>),
}

/// The values of a statement's parameters.
macro_rules! args {
    ($($value:expr),* $(,)?) => { &[$($crate::value::Value::from($value)),*] };
}
pub(super) use args;

macro_rules! from {
    ($($type:ty, $value:ident => $made:expr;)*) => {$(
        impl<'a> From<$type> for Value<'a> {
            fn from($value: $type) -> Self {
                $made
            }
        }
    )*};
}

from! {
    i64, number => Self::Number(Some(number));
    Option<i64>, number => Self::Number(number);
    u64, number => Self::Number(Some(number.cast_signed()));
    Option<u64>, number => Self::Number(number.map(u64::cast_signed));
    Option<u32>, number => Self::Number(number.map(i64::from));
    Option<u8>, number => Self::Number(number.map(i64::from));
    u32, number => Self::Number(Some(number.into()));
    u16, number => Self::Number(Some(number.into()));
    Timestamp, moment => Self::Number(Some(moment.as_millisecond()));
    Option<Timestamp>, moment => Self::Number(moment.map(Timestamp::as_millisecond));
    Option<Second>, second => Self::Number(second.map(|second| second.get().cast_signed()));
    // No campaign has an id that is too large for the database.
    CampaignId, id => Self::Number(Some(i64::try_from(id.get()).unwrap_or(i64::MAX)));
    Option<CampaignId>, id => id.map_or(Self::Number(None), Self::from);
    UploadId, id => Self::from(id.get());
    Option<UploadId>, id => Self::from(id.map(UploadId::get));
    bool, truth => Self::Truth(truth);
    &'a str, text => Self::Text(Some(Cow::Borrowed(text)));
    &'a String, text => Self::Text(Some(Cow::Borrowed(text)));
    String, text => Self::Text(Some(Cow::Owned(text)));
    Option<&'a str>, text => Self::Text(text.map(Cow::Borrowed));
    &'a Option<String>, text => Self::Text(text.as_deref().map(Cow::Borrowed));
    Option<String>, text => Self::Text(text.map(Cow::Owned));
    &'a Code, code => Self::Text(Some(Cow::Borrowed(code.as_str())));
    &'a [u8], bytes => Self::Bytes(Some(Cow::Borrowed(bytes)));
    Option<&'a [u8]>, bytes => Self::Bytes(bytes.map(Cow::Borrowed));
    &'a [i64], numbers => Self::Numbers(numbers.iter().copied().map(Some).collect());
    Vec<i64>, numbers => Self::Numbers(numbers.into_iter().map(Some).collect());
    Vec<&'a str>, texts => Self::Texts(texts.into_iter().map(|text| Some(text.into())).collect());
    Vec<&'a [u8]>, list => Self::Blobs(list.into_iter().map(Cow::Borrowed).collect());
}

impl Value<'_> {
    /// Clones the value without borrowed parts.
    pub(super) fn to_owned(&self) -> Value<'static> {
        let owned = |text: &Cow<'_, str>| Cow::Owned(text.clone().into_owned());
        match self {
            Self::Number(number) => Value::Number(*number),
            Self::Text(text) => Value::Text(text.as_ref().map(owned)),
            Self::Truth(truth) => Value::Truth(*truth),
            Self::Bytes(bytes) => {
                Value::Bytes(bytes.clone().map(|bytes| bytes.into_owned().into()))
            }
            Self::Numbers(list) => Value::Numbers(list.clone()),
            Self::Texts(list) => {
                Value::Texts(list.iter().map(|text| text.as_ref().map(owned)).collect())
            }
            Self::Truths(list) => Value::Truths(list.clone()),
            Self::Blobs(list) => {
                let owned = |bytes: &Cow<'_, [u8]>| Cow::Owned(bytes.clone().into_owned());
                Value::Blobs(list.iter().map(owned).collect())
            }
        }
    }

    /// Adds the value to SQLite's.
    pub(super) fn add_to_sqlite(&self, arguments: &mut SqliteArguments) -> Result<(), BoxDynError> {
        match self {
            Self::Number(number) => sqlx::Arguments::add(arguments, *number),
            Self::Text(text) => sqlx::Arguments::add(arguments, text.as_deref()),
            Self::Truth(truth) => sqlx::Arguments::add(arguments, *truth),
            Self::Bytes(bytes) => sqlx::Arguments::add(arguments, bytes.as_deref()),
            Self::Numbers(list) => sqlx::Arguments::add(arguments, serde_json::to_string(list)?),
            Self::Texts(list) => sqlx::Arguments::add(arguments, serde_json::to_string(list)?),
            Self::Truths(list) => sqlx::Arguments::add(arguments, serde_json::to_string(list)?),
            Self::Blobs(list) => {
                let list: Vec<String> = list.iter().map(|bytes| hex(bytes)).collect();
                sqlx::Arguments::add(arguments, serde_json::to_string(&list)?)
            }
        }
    }

    /// Adds the value to PostgreSQL's.
    pub(super) fn add_to_postgres(&self, arguments: &mut PgArguments) -> Result<(), BoxDynError> {
        match self {
            Self::Number(number) => arguments.add(*number),
            Self::Text(text) => arguments.add(text.as_deref()),
            Self::Truth(truth) => arguments.add(*truth),
            Self::Bytes(bytes) => arguments.add(bytes.as_deref()),
            Self::Numbers(list) => arguments.add(list.as_slice()),
            Self::Texts(list) => arguments.add(list.as_slice()),
            Self::Truths(list) => arguments.add(list.as_slice()),
            Self::Blobs(list) => arguments.add(list.iter().map(|it| &**it).collect::<Vec<_>>()),
        }
    }

    /// Returns whether this is the value of a column that a row does not use.
    pub(super) fn is_unused(&self) -> bool {
        matches!(
            self,
            Self::Number(None) | Self::Text(None) | Self::Bytes(None) | Self::Truth(false)
        )
    }

    /// Begins the list of a column that has this value.
    fn list(self, capacity: usize) -> Self {
        fn list<T>(first: T, capacity: usize) -> Vec<T> {
            let mut list = Vec::with_capacity(capacity);
            list.push(first);
            list
        }
        match self {
            Self::Number(number) => Self::Numbers(list(number, capacity)),
            Self::Text(text) => Self::Texts(list(text, capacity)),
            Self::Truth(truth) => Self::Truths(list(truth, capacity)),
            Self::Bytes(Some(bytes)) => Self::Blobs(list(bytes, capacity)),
            other => other,
        }
    }

    /// The value in JSON.
    fn to_json(&self) -> serde_json::Value {
        match self {
            Self::Number(number) => (*number).into(),
            Self::Text(text) => text.as_deref().into(),
            Self::Truth(truth) => (*truth).into(),
            Self::Bytes(bytes) => bytes.as_deref().map(hex).into(),
            // A list is a parameter of its own, never part of a row.
            _ => serde_json::Value::Null,
        }
    }
}

/// Bytes in hexadecimal digits.
pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Makes of rows a list of each column. A column has values of one kind.
pub(super) fn lists<'a>(
    rows: impl ExactSizeIterator<Item = impl IntoIterator<Item = Value<'a>>>,
) -> Vec<Value<'a>> {
    let mut lists: Vec<Value<'a>> = Vec::new();
    let capacity = rows.len();
    for row in rows {
        if lists.is_empty() {
            lists.extend(row.into_iter().map(|value| value.list(capacity)));
            continue;
        }
        for (list, value) in lists.iter_mut().zip(row) {
            match (list, value) {
                (Value::Numbers(list), Value::Number(number)) => list.push(number),
                (Value::Texts(list), Value::Text(text)) => list.push(text),
                (Value::Truths(list), Value::Truth(truth)) => list.push(truth),
                (Value::Blobs(list), Value::Bytes(Some(bytes))) => list.push(bytes),
                (list, value) => *list = value,
            }
        }
    }
    lists
}

/// Makes of rows one list for SQLite, which reads it with `json_each`. In each row the first value is
/// behind a null, so that a value has the number of its parameter in PostgreSQL.
pub(super) fn json<'a, const N: usize>(
    rows: impl ExactSizeIterator<Item = [Value<'a>; N]>,
) -> Vec<Value<'a>> {
    let row = |row: [Value<'a>; N]| {
        let values = row.iter().map(Value::to_json);
        serde_json::Value::from_iter([serde_json::Value::Null].into_iter().chain(values))
    };
    let list = serde_json::Value::from_iter(rows.map(row)).to_string();
    let mut values = vec![Value::Number(None); N];
    values[0] = list.into();
    values
}

/// A row of either engine.
#[derive(Debug)]
pub(super) enum Row {
    Sqlite(SqliteRow),
    Postgres(PgRow),
}

/// Both engines' way to read a column of a type.
macro_rules! column {
    ($row:expr, $column:expr) => {
        match $row {
            Row::Sqlite(row) => row.try_get($column),
            Row::Postgres(row) => row.try_get($column),
        }
    };
}

impl Row {
    /// A column that is not NULL.
    pub(super) fn get<'r, T: Column<'r>>(&'r self, column: &'static str) -> Result<T, sqlx::Error> {
        let null = || sqlx::Error::ColumnDecode {
            index: column.to_owned(),
            source: Box::new(UnexpectedNullError),
        };
        T::read(self, column)?.ok_or_else(null)
    }

    /// A column that may be NULL.
    pub(super) fn find<'r, T: Column<'r>>(
        &'r self,
        column: &'static str,
    ) -> Result<Option<T>, sqlx::Error> {
        T::read(self, column)
    }

    /// A number, whatever its width.
    fn number(&self, column: &str) -> Result<Option<i64>, sqlx::Error> {
        let Self::Postgres(row) = self else {
            return column!(self, column);
        };
        match row.try_get_raw(column)?.type_info().name() {
            "INT2" => Ok(row.try_get::<Option<i16>, _>(column)?.map(i64::from)),
            "INT4" => Ok(row.try_get::<Option<i32>, _>(column)?.map(i64::from)),
            _ => row.try_get(column),
        }
    }
}

/// A value that was read and can't be: another program has written it.
#[derive(Debug, thiserror::Error)]
#[error("a row has a {0} that is not valid")]
struct InvalidValue(&'static str);

/// The error of a column whose value can't be.
pub(super) fn invalid(column: &'static str) -> sqlx::Error {
    sqlx::Error::Decode(Box::new(InvalidValue(column)))
}

/// Names the operation in the error of a row that can't be read. In SQLite, all that share its
/// transaction report it.
pub(super) fn named(operation: &'static str) -> impl FnOnce(sqlx::Error) -> sqlx::Error {
    move |error| match error {
        sqlx::Error::Decode(_) | sqlx::Error::ColumnDecode { .. } => {
            sqlx::Error::Decode(format!("cannot {operation}: {error}").into())
        }
        error => error,
    }
}

/// A type that can be read from a column.
pub(super) trait Column<'r>: Sized {
    /// Reads it; `None` for NULL.
    fn read(row: &'r Row, column: &'static str) -> Result<Option<Self>, sqlx::Error>;
}

impl<'r> Column<'r> for i64 {
    fn read(row: &'r Row, column: &'static str) -> Result<Option<Self>, sqlx::Error> {
        row.number(column)
    }
}

/// A list: an array in PostgreSQL, JSON in SQLite.
impl<'r> Column<'r> for Vec<i64> {
    fn read(row: &'r Row, column: &'static str) -> Result<Option<Self>, sqlx::Error> {
        match row {
            Row::Postgres(row) => row.try_get(column),
            Row::Sqlite(row) => {
                let list = row.try_get::<Option<&str>, _>(column)?;
                let list = list.map(serde_json::from_str).transpose();
                list.map_err(|_error| invalid(column))
            }
        }
    }
}

impl<'r> Column<'r> for bool {
    fn read(row: &'r Row, column: &'static str) -> Result<Option<Self>, sqlx::Error> {
        column!(row, column)
    }
}

impl<'r> Column<'r> for &'r str {
    fn read(row: &'r Row, column: &'static str) -> Result<Option<Self>, sqlx::Error> {
        column!(row, column)
    }
}

impl<'r> Column<'r> for &'r [u8] {
    fn read(row: &'r Row, column: &'static str) -> Result<Option<Self>, sqlx::Error> {
        column!(row, column)
    }
}

/// Implements [`Column`] for types by converting the value of another type.
macro_rules! columns_of {
    ($($type:ty, $base:ty, $value:ident => $made:expr;)*) => {$(
        impl<'r> Column<'r> for $type {
            fn read(row: &'r Row, column: &'static str) -> Result<Option<Self>, sqlx::Error> {
                let Some($value) = <$base>::read(row, column)? else {
                    return Ok(None);
                };
                let made: Option<Self> = $made;
                made.map(Some).ok_or_else(|| invalid(column))
            }
        }
    )*};
}

columns_of! {
    u64, i64, number => Self::try_from(number).ok();
    u32, i64, number => Self::try_from(number).ok();
    u16, i64, number => Self::try_from(number).ok();
    u8, i64, number => Self::try_from(number).ok();
    Timestamp, i64, number => Self::from_millisecond(number).ok();
    Second, i64, number => Timestamp::from_second(number).ok().and_then(Self::at);
    std::num::NonZeroU64, i64, number => Self::new(number.unsigned_abs());
    CampaignId, i64, number => Self::new(number.unsigned_abs());
    CodeOrigin, u8, number => Self::by_number(number);
    UploadId, i64, number => Some(Self::new(number.unsigned_abs()));
    vocabulary::RedirectStatus, u16, code => Self::from_code(code);
    Code, &str, text => text.parse().ok();
    String, &str, text => Some(text.to_owned());
    [u8; 16], &[u8], bytes => bytes.try_into().ok();
    [u8; 32], &[u8], bytes => bytes.try_into().ok();
}

/// Returns whether PostgreSQL can store a text: only one without a NUL. A look-up of another text
/// finds nothing.
pub(super) fn is_storable(text: &str) -> bool {
    !text.contains('\0')
}
