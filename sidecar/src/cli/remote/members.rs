//! Options that say what a link is to be, and the members of a request that they become.

use clap::{Args, ValueEnum};
use serde_json::{Map, Value, json};

use super::values::{Pair, moment, object};

/// What can be said of a link when it is made, and later.
#[derive(Debug, Args)]
pub(super) struct LinkSettings {
    /// How it redirects: 301, 302, 307 or 308.
    #[arg(long, value_name = "STATUS")]
    status: Option<u16>,
    /// Whether the visitor's query is appended to the target's.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true,
          default_missing_value = "true")]
    forward_query: Option<bool>,
    /// It is answered 404 before: a time like 2030-12-31T23:59:59Z, or a day.
    #[arg(long, value_name = "TIME", value_parser = moment)]
    valid_since: Option<String>,
    /// It is answered 410 after.
    #[arg(long, value_name = "TIME", value_parser = moment)]
    valid_until: Option<String>,
    /// After about how many visits by people it ends.
    #[arg(long, value_name = "VISITS")]
    max_visits: Option<u64>,
    /// A tag. May be repeated; of a link that is there they replace all.
    #[arg(long = "tag", value_name = "TAG")]
    tags: Vec<String>,
    /// What you call it.
    #[arg(long, value_name = "ID")]
    external_id: Option<String>,
    /// What you want to remember.
    #[arg(long, value_name = "TEXT")]
    note: Option<String>,
    /// source, medium, campaign, term or content: becomes utm_… in the target's query. May be
    /// repeated.
    #[arg(long = "utm", value_name = "NAME=VALUE")]
    utm: Vec<Pair>,
    /// A value for a name in the campaign's target. May be repeated.
    #[arg(long = "parameter", value_name = "NAME=VALUE")]
    parameters: Vec<Pair>,
}

/// What a link can do without.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Clearable {
    /// When it begins.
    ValidSince,
    /// When it ends.
    ValidUntil,
    /// After how many visits it ends.
    MaxVisits,
    /// All tags.
    Tags,
    /// What you call it.
    ExternalId,
    /// What you want to remember.
    Note,
}

impl Clearable {
    fn member(self) -> &'static str {
        match self {
            Self::ValidSince => "validSince",
            Self::ValidUntil => "validUntil",
            Self::MaxVisits => "maxVisits",
            Self::Tags => "tags",
            Self::ExternalId => "externalId",
            Self::Note => "note",
        }
    }
}

impl LinkSettings {
    /// Adds what was said to a request.
    pub(super) fn add_to(&self, members: &mut Map<String, Value>) {
        put(members, "redirectStatus", self.status.as_ref());
        put(members, "forwardQuery", self.forward_query.as_ref());
        put(members, "validSince", self.valid_since.as_ref());
        put(members, "validUntil", self.valid_until.as_ref());
        put(members, "maxVisits", self.max_visits.as_ref());
        put(members, "externalId", self.external_id.as_ref());
        put(members, "note", self.note.as_ref());
        let tags = (!self.tags.is_empty()).then_some(&self.tags);
        put(members, "tags", tags);
        for (name, pairs) in [("utm", &self.utm), ("parameters", &self.parameters)] {
            if !pairs.is_empty() {
                members.insert(name.to_owned(), object(pairs));
            }
        }
    }
}

/// Adds a member, if there is one.
pub(super) fn put<T: serde::Serialize>(
    members: &mut Map<String, Value>,
    name: &str,
    value: Option<&T>,
) {
    if let Some(value) = value {
        members.insert(name.to_owned(), json!(value));
    }
}

/// Takes away what is to be cleared.
pub(super) fn clear(members: &mut Map<String, Value>, cleared: &[Clearable]) {
    for member in cleared {
        members.insert(member.member().to_owned(), Value::Null);
    }
}
