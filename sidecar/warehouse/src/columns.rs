//! The columns of a file: the members of a visit in the API, and those by which a warehouse joins it.

use std::sync::Arc;

use parquet::basic::{LogicalType, Repetition, TimeUnit, Type as Physical};
use parquet::errors::ParquetError;
use parquet::schema::types::{Type, TypePtr};
use shortlink_core::ports::ExportedVisit;

/// A column.
pub(crate) struct Column {
    name: &'static str,
    pub(crate) values: Values,
    /// Its documentation, for the book.
    #[cfg_attr(
        not(test),
        expect(dead_code, reason = "a test compares the book with it")
    )]
    text: &'static str,
}

/// The values of a column.
#[derive(Clone, Copy)]
pub(crate) enum Values {
    /// Texts.
    Text(fn(&ExportedVisit) -> &str),
    /// Texts that may be missing; an empty one is.
    Texts(fn(&ExportedVisit) -> Option<&str>),
    /// Numbers.
    Number(fn(&ExportedVisit) -> i64),
    /// Numbers that may be missing.
    Numbers(fn(&ExportedVisit) -> Option<i64>),
    /// Small numbers.
    Small(fn(&ExportedVisit) -> i32),
    /// Moments, in milliseconds since 1970.
    Moment(fn(&ExportedVisit) -> i64),
}

impl Values {
    /// The type in SQL, for the book.
    #[cfg(test)]
    fn sql(self) -> &'static str {
        match self {
            Self::Text(_) => "VARCHAR",
            Self::Texts(_) => "VARCHAR, nullable",
            Self::Number(_) => "BIGINT",
            Self::Numbers(_) => "BIGINT, nullable",
            Self::Small(_) => "INTEGER",
            Self::Moment(_) => "TIMESTAMP WITH TIME ZONE",
        }
    }
}

macro_rules! columns {
    ($($name:literal $kind:ident $read:expr, $text:literal;)+) => {
        /// All columns in their order. New ones stand at the end.
        pub(crate) const COLUMNS: &[Column] = &[$(
            Column { name: $name, values: Values::$kind($read), text: $text },
        )+];
    };
}

columns! {
    "id" Number |it| it.visit.number, "number of the visit; unique, and greater for visits that were stored later";
    "at" Moment |it| it.visit.at.as_millisecond(), "time of the answer, in milliseconds";
    "shortCode" Text |it| &it.visit.code, "code of the link, as it was requested";
    "externalId" Texts |it| it.external_id.as_deref(), "`externalId` of the link at the time of the export";
    "campaignId" Numbers |it| it.campaign.map(|id| id.get().cast_signed()), "campaign that the visit was counted for";
    "domain" Text |it| &it.visit.host, "short domain";
    "status" Small |it| i32::from(it.visit.status), "status of the answer";
    "method" Text |it| &it.visit.method, "`GET` or `HEAD`";
    "class" Text |it| &it.visit.class, "class";
    "reason" Text |it| &it.visit.reason, "reason for the class";
    "ruleset" Small |it| i32::from(it.visit.ruleset), "version of the rules that determined the class";
    "visitor" Texts |it| it.visit.visitor.as_deref(), "pseudonym of the client, the same for all its visits on a day";
    "client" Texts |it| it.visit.client.as_deref(), "stored part of the client's address";
    "country" Texts |it| it.visit.country.as_deref(), "code of the country";
    "province" Texts |it| it.visit.province.as_deref(), "province, state or region";
    "city" Texts |it| it.visit.city.as_deref(), "city";
    "isp" Texts |it| it.visit.isp.as_deref(), "Internet provider";
    "language" Texts |it| it.visit.language.as_deref(), "preferred language";
    "device" Text |it| &it.visit.device, "`phone`, `tablet`, `desktop`, `tv` or `other`";
    "os" Texts |it| it.visit.os.as_deref(), "operating system and its version";
    "browser" Texts |it| it.visit.browser.as_deref(), "browser and its version";
    "app" Texts |it| it.visit.app.as_deref(), "app whose built-in browser was used";
    "referrerHost" Texts |it| it.visit.referrer_host.as_deref(), "host of the referrer";
    "referrer" Texts |it| Some(&it.visit.referrer), "header `Referer`";
    "purpose" Texts |it| Some(&it.visit.purpose), "header `Sec-Purpose` or `Purpose`";
    "userAgent" Texts |it| Some(&it.visit.user_agent), "header `User-Agent`";
    "clickId" Texts |it| it.visit.click_id.as_deref(), "click id that the target got";
    "variant" Texts |it| it.visit.variant.as_deref(), "variant of the rule that was followed";
}

/// The schema of a file.
pub(crate) fn schema() -> Result<TypePtr, ParquetError> {
    let fields = COLUMNS.iter().map(|column| {
        let text = Some(LogicalType::String);
        let moment = Some(LogicalType::timestamp(true, TimeUnit::MILLIS));
        let (physical, logical, repetition) = match column.values {
            Values::Text(_) => (Physical::BYTE_ARRAY, text, Repetition::REQUIRED),
            Values::Texts(_) => (Physical::BYTE_ARRAY, text, Repetition::OPTIONAL),
            Values::Number(_) => (Physical::INT64, None, Repetition::REQUIRED),
            Values::Numbers(_) => (Physical::INT64, None, Repetition::OPTIONAL),
            Values::Small(_) => (Physical::INT32, None, Repetition::REQUIRED),
            Values::Moment(_) => (Physical::INT64, moment, Repetition::REQUIRED),
        };
        let field = Type::primitive_type_builder(column.name, physical)
            .with_logical_type(logical)
            .with_repetition(repetition);
        field.build().map(Arc::new)
    });
    let fields = fields.collect::<Result<Vec<_>, _>>()?;
    let visit = Type::group_type_builder("visit").with_fields(fields);
    visit.build().map(Arc::new)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_book_has_the_columns_of_this_program() {
        let book = include_str!("../../../docs/src/reference/warehouse.md");
        let rows = COLUMNS.iter().map(|column| {
            let (name, sql, text) = (column.name, column.values.sql(), column.text);
            format!("| `{name}` | {sql} | {text} |\n")
        });
        let table: String = rows.collect();
        assert!(book.contains(&table), "the book lacks the table\n{table}");
    }
}
