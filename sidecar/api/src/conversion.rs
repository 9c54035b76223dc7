//! A conversion of a link, as callers report it.

use std::marker::PhantomData;

use schemars::SchemaGenerator;
use serde_json::{Value, json};
use shortlink_core::conversion;

use super::faults::Faults;
use super::kinds::link::{CampaignId, Code, ExternalId};
use super::kinds::{Kind, Moment, Shape, Text};
use super::members::request;
use super::members::{Always, Required, members};

/// A text that is parsed, with its schema.
pub struct Parsed<T>(PhantomData<T>);

/// The schema of a text that is parsed.
pub trait ParsedSchema {
    /// Makes it.
    fn schema() -> Value;
}

impl ParsedSchema for conversion::Amount {
    fn schema() -> Value {
        json!({ "type": "string", "pattern": "^[0-9]{1,9}([.][0-9]{1,4})?$", "examples": ["49.90"] })
    }
}

impl ParsedSchema for conversion::Refunded {
    fn schema() -> Value {
        json!({
            "type": "string", "pattern": "^(all|[0-9]{1,9}([.][0-9]{1,4})?)$", "examples": ["all", "9.90"],
        })
    }
}

impl ParsedSchema for conversion::Currency {
    fn schema() -> Value {
        json!({ "type": "string", "pattern": "^[A-Z]{3}$", "examples": ["EUR"] })
    }
}

impl<T: std::str::FromStr<Err: ToString> + ParsedSchema> Kind for Parsed<T> {
    type Value = T;
    const SHAPE: Shape = Shape::Text;

    fn check(value: Value, faults: &mut Faults<'_>) -> Option<T> {
        let parsed = value.as_str().unwrap_or_default().parse();
        parsed
            .map_err(|error: T::Err| faults.refuse(error.to_string()))
            .ok()
    }

    fn schema(_: &mut SchemaGenerator) -> Value {
        T::schema()
    }
}

members! {
    /// A conversion.
    pub struct Conversion {
        /// Your id of the conversion, such as the number of an order. A repetition with the id of another conversion of
        /// the same link is not counted again.
        conversion_id: Required<ExternalId> = "conversionId",
        /// Id that the target of the visit had in the parameter that clickId of the campaign names.
        click_id: Always<Text> = "clickId",
        /// Code of the link, instead of clickId.
        short_code: Always<Code> = "shortCode",
        /// Your id of the link, instead of clickId.
        external_id: Always<ExternalId> = "externalId",
        /// Campaign of the link, if links of several campaigns have the externalId.
        campaign_id: Always<CampaignId> = "campaignId",
        /// Value as a decimal number, at most 999999999.9999 with four digits behind the point. Needs currency.
        value: Always<Parsed<conversion::Amount>> = "value",
        /// Currency of the value: three letters of ISO 4217.
        currency: Always<Parsed<conversion::Currency>> = "currency",
        /// Sum of all refunds of a conversion that was reported before, at most its value, or all. Instead of value,
        /// currency and at. A conversion that is refunded as a whole no longer counts.
        refunded: Always<Parsed<conversion::Refunded>> = "refunded",
        /// Time of the conversion. Default: now. A time that is more than five minutes ahead is refused.
        at: Always<Moment> = "at",
    }
}

request! {
    /// A conversion: what a visitor of a link did at its target, such as an order. Or a refund of one.
    pub NewConversion: New, required ["conversionId"], of Conversion
}
