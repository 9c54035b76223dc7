//! The members of a link that can be said when it is made and changed later.

use jiff::Timestamp;
use serde_json::{Map, Value};

use super::app::App;
use super::fields::{Fields, Member};
use crate::core::annotation::{
    MAX_TAGS, check_external_id, check_note, check_tag, normalized_tags,
};
use crate::core::link::{Change, Second, is_never_valid};
use crate::core::query::Utm;
use crate::core::target::{OwnHosts, Target};
use crate::service::access::Caller;

/// What `null` means for members that a link always has.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Null {
    /// That nothing is said: the default of a new link.
    IsDefault,
    /// Nothing that could be done.
    IsRefused,
}

/// Reads what is said of a link, and notes what is wrong with it.
pub(super) fn read_members(
    app: &App,
    fields: &mut Fields,
    own: &OwnHosts,
    caller: &Caller,
    null: Null,
) -> Change {
    let target = read_target(app, fields, own, caller);
    let redirect_status = fields.redirect_status("redirectStatus");
    let redirect_status = always(fields, "redirectStatus", redirect_status, null);
    let forward_query = fields.truth("forwardQuery");
    let forward_query = always(fields, "forwardQuery", forward_query, null);
    let valid_since = read_valid_since(fields);
    let valid_until = read_valid_until(fields, app.clock.now());
    if is_never_valid(valid_since.flatten(), valid_until.flatten()) {
        fields.refuse("validUntil", "must be later than validSince");
    }
    Change {
        target,
        // Needs its campaign.
        values: None,
        redirect_status,
        forward_query,
        valid_since,
        valid_until,
        max_visits: optional(fields.count("maxVisits")),
        tags: read_tags(fields),
        external_id: read_text(fields, "externalId", |text| {
            check_external_id(text).map_err(|error| error.to_string())
        }),
        // An empty note is none.
        note: read_text(fields, "note", |text| {
            check_note(text).map_err(|error| error.to_string())
        })
        .map(|note| note.filter(|text| !text.is_empty())),
    }
}

/// A member that a link always has.
fn always<T>(fields: &mut Fields, name: &str, member: Member<T>, null: Null) -> Option<T> {
    if null == Null::IsRefused && matches!(member, Member::Null) {
        fields.refuse(name, "must not be null");
    }
    member.value()
}

/// A member that a link may have.
fn optional<T>(member: Member<T>) -> Option<Option<T>> {
    match member {
        Member::Absent => None,
        Member::Null => Some(None),
        Member::Value(value) => Some(Some(value)),
    }
}

fn read_target(app: &App, fields: &mut Fields, own: &OwnHosts, caller: &Caller) -> Option<Target> {
    let has_target = fields.has("longUrl");
    let target = match fields.text("longUrl") {
        Member::Value(text) => {
            let read = match Target::parse(&text, app.policy, own) {
                Ok(target) => app
                    .target_domains
                    .check(&target, &caller.key().policy)
                    .map(|()| target)
                    .map_err(|error| error.to_string()),
                Err(error) => Err(error.to_string()),
            };
            read.map_err(|refusal| fields.refuse("longUrl", refusal))
                .ok()
        }
        Member::Null => {
            fields.refuse("longUrl", "must be a string");
            None
        }
        Member::Absent => None,
    };
    let Member::Value(members) = fields.members("utm") else {
        return target;
    };
    let utm = read_utm(fields, members);
    if !has_target {
        fields.refuse("utm", "needs longUrl, which it is appended to");
    }
    // What was appended may have become too long, and is checked as if it had been sent.
    let target = target?;
    Target::parse(&utm.appended(target.as_str()), app.policy, own)
        .map_err(|error| fields.refuse("utm", format!("longUrl with utm {error}")))
        .ok()
}

fn read_utm(fields: &mut Fields, mut members: Map<String, Value>) -> Utm {
    let mut utm = Utm::default();
    for (name, place) in utm.members() {
        match members.remove(name) {
            None | Some(Value::Null) => {}
            Some(Value::String(text)) if !text.is_empty() => *place = Some(text),
            Some(_) => fields.refuse_at(&["utm", name], "must be a string that is not empty"),
        }
    }
    for name in members.keys() {
        fields.refuse_at(&["utm", name], "is not known");
    }
    utm
}

/// The beginning is filled up to a whole second and the end is cut: a link is never valid outside
/// of what was asked for.
fn read_valid_since(fields: &mut Fields) -> Option<Option<Second>> {
    let moment = optional(fields.moment("validSince"))?;
    let Some(moment) = moment else {
        return Some(None);
    };
    let second = Second::not_before(moment);
    if second.is_none() {
        fields.refuse("validSince", "must be after the beginning of 1970");
    }
    Some(second)
}

fn read_valid_until(fields: &mut Fields, now: Timestamp) -> Option<Option<Second>> {
    let moment = optional(fields.moment("validUntil"))?;
    let Some(moment) = moment else {
        return Some(None);
    };
    let second = Second::at(moment).filter(|second| second.moment() > now);
    if second.is_none() {
        fields.refuse("validUntil", "must be in the future");
    }
    Some(second)
}

fn read_text(
    fields: &mut Fields,
    name: &str,
    check: impl FnOnce(&str) -> Result<(), String>,
) -> Option<Option<String>> {
    let text = optional(fields.text(name))?;
    if let Some(text) = &text
        && let Err(detail) = check(text)
    {
        fields.refuse(name, detail);
    }
    Some(text)
}

/// Reads tags, in ascending order and each once.
pub(super) fn read_tags(fields: &mut Fields) -> Option<Vec<String>> {
    let values = optional(fields.values("tags"))?.unwrap_or_default();
    let mut tags = Vec::with_capacity(values.len());
    for (place, value) in values.into_iter().enumerate() {
        let detail = match value {
            Value::String(tag) => match check_tag(&tag) {
                Ok(()) => {
                    tags.push(tag);
                    continue;
                }
                Err(error) => error.to_string(),
            },
            _ => "must be a string".to_owned(),
        };
        fields.refuse_at(&["tags", &place.to_string()], detail);
    }
    let tags = normalized_tags(tags);
    if tags.len() > MAX_TAGS {
        fields.refuse("tags", format!("must be at most {MAX_TAGS} different ones"));
    }
    Some(tags)
}
