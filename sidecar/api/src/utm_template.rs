//! A template of UTM parameters.

use std::collections::{BTreeMap, HashMap};

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::Serialize;
use shortlink_core::query::{MAX_TEMPLATE_NAME, UtmTemplate};

use super::kinds::Name;
use super::kinds::link::Utm;
use super::members::{Required, members, request};

members! {
    /// The members of a template.
    pub struct UtmTemplateMembers {
        /// Name of the template, unique among all templates: 1 to 64 characters.
        name: Required<Name<MAX_TEMPLATE_NAME>> = "name",
        /// UTM parameters: at least one of source, medium, campaign, term and content, each of up to 255 characters.
        utm: Required<Utm> = "utm",
    }
}

request! {
    /// A template, in place of the one with its name.
    pub NewUtmTemplate: New, required ["name", "utm"], of UtmTemplateMembers
}

/// A template of UTM parameters.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "UtmTemplate")]
pub struct UtmTemplateBody {
    name: String,
    /// The parameters that are set, without `utm_`.
    utm: BTreeMap<String, String>,
    updated_at: Timestamp,
    /// Id of the API key or person that changed the template.
    updated_by: String,
    /// Current name of that API key or person.
    updated_by_name: Option<String>,
}

impl UtmTemplateBody {
    /// Describes a template; `names` are those of API keys by their ids.
    pub fn new(template: &UtmTemplate, names: &HashMap<String, String>) -> Self {
        let utm = template.utm.parameters();
        Self {
            name: template.name.clone(),
            utm: utm
                .map(|(name, value)| (name.to_owned(), value.to_owned()))
                .collect(),
            updated_at: template.updated_at,
            updated_by: template.updated_by.clone(),
            updated_by_name: names.get(&template.updated_by).cloned(),
        }
    }
}
