//! Reads the request for a job.

use std::collections::HashSet;

use schemars::JsonSchema;
use serde_json::{Map, Value};
use shortlink_api::fields::Fields;
use shortlink_api::kinds::link::{CampaignId as CampaignText, ExternalId, Parameters};
use shortlink_api::kinds::{List, ShortText, Truth};
use shortlink_api::link::LinkPatch;
use shortlink_api::members::Usage;
use shortlink_core::bulk::{BulkAction, MAX_CODES, NewBulkJob, Selection};
use shortlink_core::link::{Change, UploadId};
use shortlink_core::short_url::Owners;
use shortlink_service::access::Caller;
use shortlink_service::repeat::RowsDigest;
use vocabulary::{CampaignId, Code};

use crate::app::App;
use crate::auth::own_ids;
use crate::extract::Domains;
use crate::link_members::{check_short_domain, read_members};
use crate::problem::Problem;
use crate::words;

/// The members that select links, of which a job has one.
const SELECTIONS: [&str; 5] = ["codes", "tag", "externalId", "campaignId", "uploadId"];

/// A new job. One of `codes`, `tag`, `externalId`, `campaignId` and `uploadId` selects the links.
#[derive(JsonSchema)]
#[schemars(rename = "NewJob", rename_all = "camelCase")]
#[expect(
    dead_code,
    reason = "describes the body, whose members are read one by one"
)]
pub(super) struct NewJobBody {
    /// Action for each link.
    action: words::JobAction,
    /// Members to change, for the action `change`; as in `PATCH /v1/links/{code}`, without `parameters`.
    #[schemars(with = "LinkPatch", skip_serializing_if = "Option::is_none")]
    change: Option<LinkPatch>,
    /// Codes of the links, at most 100,000; a repeated one counts once.
    #[schemars(with = "Vec<words::Code>", skip_serializing_if = "Option::is_none")]
    codes: Option<Vec<words::Code>>,
    /// Tag of the links.
    #[schemars(with = "String", skip_serializing_if = "Option::is_none")]
    tag: Option<String>,
    /// External id of the links.
    #[schemars(with = "String", skip_serializing_if = "Option::is_none")]
    external_id: Option<String>,
    /// Campaign of the links.
    #[schemars(with = "words::CampaignId", skip_serializing_if = "Option::is_none")]
    campaign_id: Option<words::CampaignId>,
    /// Upload that created the links.
    #[schemars(with = "words::UploadId", skip_serializing_if = "Option::is_none")]
    upload_id: Option<words::UploadId>,
    /// Report the results that the job would have, and change nothing.
    #[schemars(with = "bool", skip_serializing_if = "Option::is_none")]
    dry_run: Option<bool>,
}

/// The digest of a request for a job.
pub(super) fn digest(members: &Map<String, Value>) -> [u8; 32] {
    let mut digest = RowsDigest::default();
    digest.add(b"a job");
    digest.add(Value::from_iter(members.clone()).to_string().as_bytes());
    digest.finish()
}

/// Reads a new job.
pub(super) fn read_new(
    app: &App,
    members: Map<String, Value>,
    domains: &Domains,
    caller: &Caller,
) -> Result<NewBulkJob, Problem> {
    let mut fields = Fields::new(members);
    let action = fields.read::<ShortText<16>>("action").value();
    let action = fields.required("action", action);
    let action = action.and_then(|name| {
        let known = BulkAction::by_name(&name);
        fields.checked(
            "action",
            known.ok_or(format!("must be one of {}", BulkAction::NAMES)),
        )
    });
    let selection = read_selection(&mut fields);
    // A confined key does not learn which domains are reserved for campaigns of others.
    let campaign = match selection {
        Some(Selection::Campaign(id)) if own_ids(caller).is_none() => Some(id),
        _ => None,
    };
    let change = read_change(app, &mut fields, action, campaign, domains, caller);
    let is_trial = fields.read::<Truth>("dryRun").value().unwrap_or_default();
    fields.finish()?;
    Ok(NewBulkJob {
        key_id: caller.key().id.clone(),
        // Both were noted as faults if they are missing.
        action: action.ok_or_else(Problem::internal)?,
        selection: selection.ok_or_else(Problem::internal)?,
        own: own_ids(caller),
        change,
        is_trial,
        idempotency: None,
        created_at: app.clock.now(),
    })
}

/// Reads the members to change.
fn read_change(
    app: &App,
    fields: &mut Fields,
    action: Option<BulkAction>,
    campaign: Option<CampaignId>,
    domains: &Domains,
    caller: &Caller,
) -> Change {
    let given = fields.read::<Parameters>("change").value();
    let Some(members) = given else {
        if action == Some(BulkAction::Change) {
            fields.require("change");
        }
        return Change::default();
    };
    if action.is_some_and(|action| action != BulkAction::Change) {
        fields.refuse("change", "is for the action change");
    }
    if members.is_empty() {
        fields.refuse("change", "must have a member");
    }
    fields.within("change", members, |inner| {
        if inner.has("parameters") {
            inner.ignore("parameters");
            inner.refuse(
                "parameters",
                "can't be changed by a job: every link has its own",
            );
        }
        let change = read_members(app, inner, &domains.own, caller, Usage::Patch);
        // The domains of each link are unknown: those of a new link of the caller, in the selected campaign.
        let owners = Owners {
            campaign,
            key: &caller.key().id,
        };
        check_short_domain(inner, &change, domains, owners, None);
        change
    })
}

/// Reads the selection, which is one of several members.
fn read_selection(fields: &mut Fields) -> Option<Selection> {
    let given: Vec<&str> = SELECTIONS
        .into_iter()
        .filter(|name| fields.has(name))
        .collect();
    let [one] = given[..] else {
        let names = SELECTIONS.join(", ");
        match given.get(1) {
            Some(name) => fields.refuse(
                name,
                format!(
                    "cannot be combined with {}: specify one of {names}",
                    given[0]
                ),
            ),
            None => fields.refuse_at(&[], format!("must select links with one of {names}")),
        }
        for name in SELECTIONS {
            fields.ignore(name);
        }
        return None;
    };
    match one {
        "codes" => {
            let codes = fields.read::<List<Code, words::Code>>("codes").value()?;
            let mut seen = HashSet::with_capacity(codes.len());
            let codes: Vec<Code> = codes
                .into_iter()
                .filter(|code| seen.insert(*code))
                .collect();
            if codes.is_empty() || codes.len() > MAX_CODES {
                fields.refuse("codes", format!("must be 1 to {MAX_CODES} codes"));
                return None;
            }
            Some(Selection::Codes(codes))
        }
        "tag" => fields
            .read::<ShortText<64>>("tag")
            .value()
            .map(Selection::Tag),
        "externalId" => fields
            .read::<ExternalId>("externalId")
            .value()
            .map(Selection::ExternalId),
        "campaignId" => {
            let text = fields.read::<CampaignText>("campaignId").value()?;
            let id = text.parse::<CampaignId>();
            fields.checked("campaignId", id).map(Selection::Campaign)
        }
        _ => {
            let text = fields.read::<ShortText<16>>("uploadId").value()?;
            let id = text.parse::<UploadId>();
            fields.checked("uploadId", id).map(Selection::Upload)
        }
    }
}
