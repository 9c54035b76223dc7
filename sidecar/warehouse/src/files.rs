//! The files of a part of an export: one for each day.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;

use jiff::Timestamp;
use jiff::civil::Date;
use jiff::tz::TimeZone;
use parquet::basic::{Compression, ZstdLevel};
use parquet::data_type::{ByteArray, ByteArrayType, DataType, Int32Type, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::properties::{WriterProperties, WriterPropertiesPtr};
use parquet::file::writer::{SerializedColumnWriter, SerializedFileWriter};
use parquet::schema::types::TypePtr;
use shortlink_core::ports::ExportedVisit;

use crate::WarehouseError;
use crate::columns::{COLUMNS, Values, schema};

/// The most visits that wait in memory for their row group.
const MOST_WAITING: usize = 100_000;

/// Collects the visits of a part. The same visits in the same order become the same files, byte for byte.
pub struct PartFiles {
    schema: TypePtr,
    properties: WriterPropertiesPtr,
    days: BTreeMap<Date, DayFile>,
    waiting: usize,
}

/// The file of a day.
struct DayFile {
    writer: SerializedFileWriter<Vec<u8>>,
    waiting: Vec<ExportedVisit>,
}

impl PartFiles {
    /// Begins without visits.
    ///
    /// # Errors
    /// Fails if the schema is invalid.
    pub fn new() -> Result<Self, WarehouseError> {
        let version = concat!("shortlink ", env!("CARGO_PKG_VERSION"));
        let properties = WriterProperties::builder()
            .set_created_by(version.to_owned())
            .set_compression(Compression::ZSTD(ZstdLevel::default()));
        Ok(Self {
            schema: schema()?,
            properties: Arc::new(properties.build()),
            days: BTreeMap::new(),
            waiting: 0,
        })
    }

    /// Adds a visit, to the file of its day in UTC.
    ///
    /// # Errors
    /// Fails if the visits can't be encoded.
    pub fn push(&mut self, visit: ExportedVisit) -> Result<(), WarehouseError> {
        let day = match self.days.entry(day(visit.visit.at)) {
            Entry::Occupied(day) => day.into_mut(),
            Entry::Vacant(place) => {
                let (schema, properties) = (self.schema.clone(), self.properties.clone());
                place.insert(DayFile {
                    writer: SerializedFileWriter::new(Vec::new(), schema, properties)?,
                    waiting: Vec::new(),
                })
            }
        };
        day.waiting.push(visit);
        self.waiting += 1;
        if self.waiting >= MOST_WAITING
            && let Some(day) = self.days.values_mut().max_by_key(|day| day.waiting.len())
        {
            self.waiting -= day.waiting.len();
            day.write_waiting()?;
        }
        Ok(())
    }

    /// Ends the files of the part behind the visit `after` up to the visit `last`: their paths and their bytes.
    ///
    /// # Errors
    /// Fails if the visits can't be encoded.
    pub fn finish(
        self,
        (after, last): (i64, i64),
    ) -> Result<Vec<(String, Vec<u8>)>, WarehouseError> {
        let files = self.days.into_iter().map(|(day, mut file)| {
            file.write_waiting()?;
            // Names sort as numbers do.
            let path = format!("day={day}/visits-{:015}-{last:015}.parquet", after + 1);
            Ok((path, file.writer.into_inner()?))
        });
        files.collect()
    }
}

impl DayFile {
    /// Writes the waiting visits as a row group.
    fn write_waiting(&mut self) -> Result<(), ParquetError> {
        let visits = std::mem::take(&mut self.waiting);
        if visits.is_empty() {
            return Ok(());
        }
        let mut group = self.writer.next_row_group()?;
        for column in COLUMNS {
            let Some(mut writer) = group.next_column()? else {
                break;
            };
            write(&mut writer, column.values, &visits)?;
            writer.close()?;
        }
        group.close()?;
        Ok(())
    }
}

fn write(
    writer: &mut SerializedColumnWriter<'_>,
    values: Values,
    visits: &[ExportedVisit],
) -> Result<(), ParquetError> {
    let bytes = |text: &str| ByteArray::from(text.as_bytes().to_vec());
    let each = visits.iter();
    match values {
        Values::Text(of) => all::<ByteArrayType>(writer, each.map(|visit| bytes(of(visit)))),
        Values::Texts(of) => some::<ByteArrayType>(
            writer,
            each.map(|visit| of(visit).filter(|text| !text.is_empty()).map(bytes)),
        ),
        Values::Number(of) | Values::Moment(of) => all::<Int64Type>(writer, each.map(of)),
        Values::Numbers(of) => some::<Int64Type>(writer, each.map(of)),
        Values::Small(of) => all::<Int32Type>(writer, each.map(of)),
    }
}

fn all<T: DataType>(
    writer: &mut SerializedColumnWriter<'_>,
    values: impl Iterator<Item = T::T>,
) -> Result<(), ParquetError> {
    let values: Vec<T::T> = values.collect();
    writer.typed::<T>().write_batch(&values, None, None)?;
    Ok(())
}

fn some<T: DataType>(
    writer: &mut SerializedColumnWriter<'_>,
    values: impl Iterator<Item = Option<T::T>>,
) -> Result<(), ParquetError> {
    let mut present = Vec::new();
    let levels = values.map(|value| {
        let level = i16::from(value.is_some());
        present.extend(value);
        level
    });
    let levels: Vec<i16> = levels.collect();
    let typed = writer.typed::<T>();
    typed.write_batch(&present, Some(&levels), None)?;
    Ok(())
}

/// The day of a moment in UTC.
fn day(at: Timestamp) -> Date {
    at.to_zoned(TimeZone::UTC).date()
}

#[cfg(test)]
mod tests {
    use parquet::file::reader::{FileReader, SerializedFileReader};
    use parquet::record::RowAccessor;
    use shortlink_core::ports::KeptVisit;

    use super::*;

    fn visit(number: i64, at: &str, referrer: &str) -> ExportedVisit {
        ExportedVisit {
            visit: KeptVisit {
                number,
                at: at.parse().expect("a time"),
                code: format!("code{number}"),
                referrer: referrer.to_owned(),
                ..KeptVisit::default()
            },
            ..ExportedVisit::default()
        }
    }

    /// The files of some visits.
    fn files(visits: &[ExportedVisit]) -> Vec<(String, Vec<u8>)> {
        let mut part = PartFiles::new().expect("a schema");
        for visit in visits {
            part.push(visit.clone()).expect("a visit");
        }
        part.finish((6, 12)).expect("files")
    }

    #[test]
    fn each_day_has_a_file_that_is_the_same_every_time() {
        let visits = [
            visit(7, "2026-11-24T23:59:59.999Z", "https://a.example/"),
            visit(9, "2026-11-25T00:00:00Z", ""),
            visit(12, "2026-11-24T12:00:00Z", ""),
        ];
        let files = files(&visits);
        assert_eq!(files, self::files(&visits));
        let paths: Vec<&str> = files.iter().map(|(path, _)| path.as_str()).collect();
        assert_eq!(
            paths,
            [
                "day=2026-11-24/visits-000000000000007-000000000000012.parquet",
                "day=2026-11-25/visits-000000000000007-000000000000012.parquet",
            ]
        );
        let reader = SerializedFileReader::new(parquet_bytes(&files[0].1)).expect("a file");
        let metadata = reader.metadata();
        assert_eq!(metadata.file_metadata().num_rows(), 2);
        let columns = metadata.row_group(0).columns();
        let is_zstd = |it: &parquet::file::metadata::ColumnChunkMetaData| {
            matches!(it.compression(), Compression::ZSTD(_))
        };
        assert!(columns.iter().all(is_zstd));
        let rows = reader.get_row_iter(None).expect("rows");
        let rows: Vec<_> = rows.map(|row| row.expect("a row")).collect();
        assert_eq!(rows[0].get_long(0).ok(), Some(7));
        assert_eq!(rows[1].get_string(2).expect("a text"), "code12");
        let referrer = COLUMNS.len() - 5;
        assert_eq!(
            rows[0].get_string(referrer).expect("a text"),
            "https://a.example/"
        );
        // An empty text is missing.
        assert!(rows[1].get_string(referrer).is_err());
    }

    fn parquet_bytes(bytes: &[u8]) -> hyper::body::Bytes {
        hyper::body::Bytes::copy_from_slice(bytes)
    }
}
