//! Options that say what a link is to be, and the members of a request that they become.

use clap::{Args, ValueEnum};
use serde_json::{Map, Value, json};

use super::values::{Pair, moment, object};

/// What can be said of a link when it is made, and later.
#[derive(Debug, Args)]
pub(super) struct LinkSettings {
    /// Redirect status: 301, 302, 307 or 308. Default for a new link: `links.default_redirect_status` of
    /// the sidecar. Not for a link of a campaign.
    #[arg(long, value_name = "STATUS")]
    status: Option<u16>,
    /// Append the visitor's query to that of the target: true or false; true without a value. Default for
    /// a new link: false. Not for a link of a campaign.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true,
          default_missing_value = "true")]
    forward_query: Option<bool>,
    /// Start of validity; the link answers 404 before it. A time such as 2030-12-31T23:59:59Z, or a day
    /// (UTC).
    #[arg(long, value_name = "TIME", value_parser = moment)]
    valid_since: Option<String>,
    /// End of validity, in the future; the link answers 410 from then on. A time or a day (UTC).
    #[arg(long, value_name = "TIME", value_parser = moment)]
    valid_until: Option<String>,
    /// Number of human visits after which the link expires: 1 or more. The limit is approximate; a few
    /// more visits may be redirected.
    #[arg(long, value_name = "VISITS")]
    max_visits: Option<u64>,
    /// Tag of 1 to 64 characters, at most 20 per link. Can be repeated. A change replaces all tags of the
    /// link.
    #[arg(long = "tag", value_name = "TAG")]
    tags: Vec<String>,
    /// Your own id for the link: 1 to 128 bytes of UTF-8.
    #[arg(long, value_name = "ID")]
    external_id: Option<String>,
    /// Note of at most 1000 characters.
    #[arg(long, value_name = "TEXT")]
    note: Option<String>,
    /// UTM parameter of the target's query, which replaces the one in the URL. NAME is source, medium,
    /// campaign, term or content. Needs a target URL in the same command. Can be repeated.
    #[arg(long = "utm", value_name = "NAME=VALUE")]
    utm: Vec<Pair>,
    /// Value of a parameter of the campaign's target, for a link of a campaign. Can be repeated.
    #[arg(long = "parameter", value_name = "NAME=VALUE")]
    parameters: Vec<Pair>,
}

/// What a link can do without.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Clearable {
    /// The start of validity.
    ValidSince,
    /// The end of validity.
    ValidUntil,
    /// The maximum number of visits.
    MaxVisits,
    /// All tags.
    Tags,
    /// The external id.
    ExternalId,
    /// The note.
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
