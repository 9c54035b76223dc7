//! Requests for jobs as JSON, in `jobs.request` of both databases.

use std::num::NonZeroU64;

use jiff::Timestamp;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value, json};
use shortlink_core::bulk::{BulkAction, NewBulkJob, SelectedBy, Selection};
use shortlink_core::link::{Change, Second, UploadId};
use shortlink_core::plan::PlanChange;
use shortlink_core::target::Target;
use vocabulary::{CampaignId, RedirectStatus};

/// The selection and the change of a job. Members that a later version adds must be optional: stored texts never change.
#[derive(Debug, Default, Deserialize, Serialize)]
pub(super) struct Request {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    tag: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    external_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    campaign: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    upload: Option<u64>,
    /// The ids of the keys whose links the job reaches.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) own: Option<Vec<String>>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    trial: bool,
    #[serde(default, skip_serializing_if = "Changed::is_none")]
    change: Changed,
}

/// The members that a job changes. `null` removes a member.
#[derive(Debug, Default, Deserialize, PartialEq, Serialize)]
struct Changed {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    target: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    redirect_status: Option<u16>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    forward_query: Option<bool>,
    /// Seconds since 1970.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "present"
    )]
    valid_since: Option<Option<i64>>,
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "present"
    )]
    valid_until: Option<Option<i64>>,
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "present"
    )]
    max_visits: Option<Option<NonZeroU64>>,
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "present"
    )]
    domain: Option<Option<String>>,
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "present"
    )]
    external_id: Option<Option<String>>,
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "present"
    )]
    note: Option<Option<String>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    tags: Option<Vec<String>>,
    /// As they stand in a stored plan.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    rules: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    variants: Option<String>,
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "present"
    )]
    expired_target: Option<Option<String>>,
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "present"
    )]
    paused_target: Option<Option<String>>,
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "present"
    )]
    not_yet_target: Option<Option<String>>,
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "present"
    )]
    preview: Option<Option<String>>,
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "present"
    )]
    click_id: Option<Option<String>>,
}

/// Reads a member that is there, be it `null`.
fn present<'de, T: Deserialize<'de>, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Option<T>>, D::Error> {
    Option::deserialize(deserializer).map(Some)
}

impl Changed {
    fn is_none(&self) -> bool {
        *self == Self::default()
    }

    fn of(change: &Change) -> Self {
        let second = |bound: Option<Option<Second>>| {
            bound.map(|it| it.map(|second| second.get().cast_signed()))
        };
        let [expired_target, paused_target, not_yet_target] = change.plan.instead.clone();
        Self {
            target: change
                .target
                .as_ref()
                .map(|target| target.as_str().to_owned()),
            redirect_status: change.redirect_status.map(RedirectStatus::code),
            forward_query: change.forward_query,
            valid_since: second(change.valid_since),
            valid_until: second(change.valid_until),
            max_visits: change.max_visits,
            domain: change.domain.clone(),
            external_id: change.external_id.clone(),
            note: change.note.clone(),
            tags: change.tags.clone(),
            rules: change.plan.rules.clone(),
            variants: change.plan.variants.clone(),
            expired_target,
            paused_target,
            not_yet_target,
            preview: change.plan.preview.clone(),
            click_id: change.plan.click_id.clone(),
        }
    }

    fn change(self) -> Option<Change> {
        let second = |bound: Option<Option<i64>>| match bound {
            Some(Some(second)) => {
                Second::at(Timestamp::from_second(second).ok()?).map(|it| Some(Some(it)))
            }
            Some(None) => Some(Some(None)),
            None => Some(None),
        };
        let redirect_status = match self.redirect_status {
            Some(code) => Some(RedirectStatus::from_code(code)?),
            None => None,
        };
        Some(Change {
            target: self.target.map(Target::from_stored),
            values: None,
            redirect_status,
            forward_query: self.forward_query,
            plan: PlanChange {
                rules: self.rules,
                variants: self.variants,
                instead: [self.expired_target, self.paused_target, self.not_yet_target],
                preview: self.preview,
                click_id: self.click_id,
            },
            valid_since: second(self.valid_since)?,
            valid_until: second(self.valid_until)?,
            max_visits: self.max_visits,
            domain: self.domain,
            external_id: self.external_id,
            note: self.note,
            tags: self.tags,
        })
    }
}

impl Request {
    /// Extracts the request of a job; its list of codes is stored apart.
    pub(super) fn of(new: &NewBulkJob) -> Self {
        let mut request = Self {
            own: new.own.clone(),
            trial: new.is_trial,
            change: Changed::of(&new.change),
            ..Self::default()
        };
        match &new.selection {
            Selection::Codes(_) => {}
            Selection::Tag(tag) => request.tag = Some(tag.clone()),
            Selection::ExternalId(id) => request.external_id = Some(id.clone()),
            Selection::Campaign(id) => request.campaign = Some(id.get()),
            Selection::Upload(id) => request.upload = Some(id.get()),
        }
        request
    }

    /// The details of the job in the audit log: names of changed members, but no values.
    pub(super) fn audited(&self, action: BulkAction, codes: Option<u64>) -> Map<String, Value> {
        let changed = serde_json::to_value(&self.change).ok();
        let changed =
            changed.and_then(|it| Some(it.as_object()?.keys().cloned().collect::<Vec<_>>()));
        let changed = changed.filter(|names| !names.is_empty());
        let upload = self.upload.map(|number| UploadId::new(number).to_string());
        let campaign = self
            .campaign
            .and_then(CampaignId::new)
            .map(|id| id.to_string());
        let members = [
            ("action", Some(json!(action.name()))),
            ("codes", codes.map(|codes| json!(codes))),
            ("tag", self.tag.as_ref().map(|tag| json!(tag))),
            ("externalId", self.external_id.as_ref().map(|id| json!(id))),
            ("campaignId", campaign.map(|id| json!(id))),
            ("uploadId", upload.map(|id| json!(id))),
            ("changed", changed.map(|names| json!(names))),
            ("dryRun", self.trial.then_some(json!(true))),
        ];
        let members = members.into_iter();
        members
            .filter_map(|(name, value)| Some((name.to_owned(), value?)))
            .collect()
    }

    /// Returns the text to store.
    pub(super) fn to_json(&self) -> String {
        // There is nothing in it that JSON can't hold.
        serde_json::to_string(self).unwrap_or_default()
    }

    /// Parses a stored text.
    pub(super) fn from_json(text: &str) -> Option<Self> {
        serde_json::from_str(text).ok()
    }

    /// The selection, the change, and whether the job is a trial; `None` if the stored text is invalid.
    pub(super) fn parts(self) -> Option<(SelectedBy, Change, bool)> {
        let selection = match (self.tag, self.external_id, self.campaign, self.upload) {
            (Some(tag), ..) => Some(Selection::Tag(tag)),
            (_, Some(id), ..) => Some(Selection::ExternalId(id)),
            (_, _, Some(id), _) => Some(Selection::Campaign(CampaignId::new(id)?)),
            (.., Some(id)) => Some(Selection::Upload(UploadId::new(id))),
            _ => None,
        };
        let selected_by = selection.map_or(SelectedBy::Codes, SelectedBy::Other);
        Some((selected_by, self.change.change()?, self.trial))
    }
}

#[cfg(test)]
mod tests {
    use shortlink_core::testing::moment;

    use super::*;

    #[test]
    fn a_request_is_read_as_it_was_stored() {
        let end = Second::at(moment("2027-01-01T00:00:00Z"));
        let full = Change {
            target: Some(Target::from_stored("https://example.com/".to_owned())),
            redirect_status: RedirectStatus::from_code(307),
            forward_query: Some(true),
            valid_since: Some(None),
            valid_until: Some(end),
            max_visits: Some(NonZeroU64::new(3)),
            domain: Some(Some("s.example.com".to_owned())),
            external_id: Some(None),
            note: Some(Some("note".to_owned())),
            tags: Some(Vec::new()),
            plan: PlanChange {
                rules: Some(String::new()),
                variants: Some("R37:s=0.0-10000;v=a https://e.example/ab".to_owned()),
                instead: [
                    Some(None),
                    None,
                    Some(Some("https://e.example/".to_owned())),
                ],
                preview: Some(None),
                click_id: Some(Some("sl_click".to_owned())),
            },
            ..Change::default()
        };
        let campaign = CampaignId::new(7).expect("an id");
        for (selection, change, is_trial) in [
            (Selection::Tag("spring".to_owned()), full, true),
            (
                Selection::ExternalId("m".to_owned()),
                Change::default(),
                false,
            ),
            (Selection::Campaign(campaign), Change::default(), false),
            (
                Selection::Upload(UploadId::new(0)),
                Change::default(),
                false,
            ),
        ] {
            let new = NewBulkJob {
                key_id: "key".to_owned(),
                action: BulkAction::Change,
                selection: selection.clone(),
                own: None,
                change: change.clone(),
                is_trial,
                idempotency: None,
                created_at: moment("2026-01-01T00:00:00Z"),
            };
            let json = Request::of(&new).to_json();
            let parts = Request::from_json(&json).and_then(Request::parts);
            assert_eq!(
                parts,
                Some((SelectedBy::Other(selection), change, is_trial)),
                "{json}"
            );
        }
    }
}
