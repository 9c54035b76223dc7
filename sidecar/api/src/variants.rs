//! Variants of an A/B test, which become rules, and the winner that ends it.

use schemars::SchemaGenerator;
use serde_json::{Value, json};
use vocabulary::plan::MAX_RULES;

use super::faults::Faults;
use super::fields::Fields;
use super::kinds::link::LongUrl;
use super::kinds::{Kind, Shape, expect};
use super::members::{Members, Required, Usage, members, request};
use super::rules::{Variant, objects};
use super::schema::of;

/// The greatest weight.
const MAX_WEIGHT: f64 = 1_000_000.0;

members! {
    /// A variant.
    pub struct VariantMembers {
        /// Name that visits by this variant carry: 1 to 32 letters, digits, hyphens and underscores.
        name: Required<Variant> = "name",
        /// Part of the visitors, relative to the weights of the other variants; 0 for none.
        weight: Required<Weight> = "weight",
        /// Target of the variant, with the requirements for that of the link or the campaign.
        long_url: Required<LongUrl> = "longUrl",
    }
}

request! {
    /// A variant of an A/B test.
    pub NewVariant: New, required ["name", "weight", "longUrl"], of VariantMembers
}

members! {
    /// The end of an A/B test.
    pub struct WinnerMembers {
        /// Name of the variant; empty for `longUrl`.
        variant: Required<WinnerName> = "variant",
    }
}

request! {
    /// The winner of an A/B test.
    pub Winner: New, required ["variant"], of WinnerMembers
}

/// A variant whose target is not checked yet.
#[derive(Clone, Debug, PartialEq)]
pub struct GivenVariant {
    /// The name.
    pub name: String,
    /// The weight.
    pub weight: f64,
    /// The target, as it was given.
    pub long_url: String,
}

/// Variants.
pub enum Variants {}

impl Kind for Variants {
    type Value = Vec<GivenVariant>;
    const SHAPE: Shape = Shape::Json;

    fn check(value: Value, faults: &mut Faults<'_>) -> Option<Vec<GivenVariant>> {
        let mut names: Vec<String> = Vec::new();
        let variants = objects(value, faults, "variants", |fields| {
            let variant = read_variant(fields)?;
            if names.contains(&variant.name) {
                fields.refuse("name", "is the name of an earlier variant");
                return None;
            }
            names.push(variant.name.clone());
            Some(variant)
        })?;
        let has_visitors = variants.is_empty() || variants.iter().any(|it| it.weight > 0.0);
        if !has_visitors {
            faults.refuse("must have a variant with a weight above 0");
        }
        has_visitors.then_some(variants)
    }

    fn schema(generator: &mut SchemaGenerator) -> Value {
        let variant = of::<NewVariant>(generator);
        json!({ "type": "array", "items": variant, "maxItems": MAX_RULES })
    }
}

/// Reads a variant; `None` if a fault was noted.
fn read_variant(fields: &mut Fields) -> Option<GivenVariant> {
    let given = VariantMembers::read(fields, Usage::New);
    let name = fields.required("name", given.name);
    let weight = fields.required("weight", given.weight);
    let long_url = fields.required("longUrl", given.long_url);
    if !fields.is_faultless() {
        return None;
    }
    Some(GivenVariant {
        name: name?,
        weight: weight?,
        long_url: long_url?,
    })
}

/// The weight of a variant.
pub enum Weight {}

impl Kind for Weight {
    type Value = f64;
    const SHAPE: Shape = Shape::Number;

    fn check(value: Value, faults: &mut Faults<'_>) -> Option<f64> {
        let weight = value.as_f64();
        let weight = weight.filter(|weight| (0.0..=MAX_WEIGHT).contains(weight));
        expect(weight, faults, "a number from 0 to 1000000")
    }

    fn schema(_: &mut SchemaGenerator) -> Value {
        json!({ "type": "number", "minimum": 0, "maximum": MAX_WEIGHT })
    }
}

/// The name of a variant, or an empty one.
pub enum WinnerName {}

impl Kind for WinnerName {
    type Value = String;
    const SHAPE: Shape = Shape::Text;

    fn check(value: Value, faults: &mut Faults<'_>) -> Option<String> {
        match value.as_str() {
            Some("") => Some(String::new()),
            _ => Variant::check(value, faults),
        }
    }

    fn schema(_: &mut SchemaGenerator) -> Value {
        json!({ "type": "string", "pattern": "^[-0-9A-Z_a-z]{0,32}$" })
    }
}
