//! Jobs in answers.

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::Serialize;
use shortlink_core::bulk::{BulkAction, BulkJob, Erased, SelectedBy, Selection};

use crate::words;

/// A job.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "Job")]
pub(crate) struct JobBody {
    id: u64,
    #[schemars(with = "words::JobAction")]
    action: &'static str,
    selection: SelectionBody,
    /// The job changes nothing.
    dry_run: bool,
    #[schemars(with = "words::JobState")]
    state: &'static str,
    /// Reason why the job has failed.
    reason: Option<String>,
    /// Number of selected links; `null` until they are counted.
    selected: Option<u64>,
    /// Number of links with a result.
    done: u64,
    /// Links that were changed; with `dryRun`, that would be.
    changed: u64,
    /// Links that needed no change.
    unchanged: u64,
    /// Links that could not be changed, and codes without a link.
    failed: u64,
    /// Id of the API key that the job acts for.
    created_by: String,
    created_at: Timestamp,
    started_at: Option<Timestamp>,
    finished_at: Option<Timestamp>,
    /// Numbers of rows that an erasure has removed; only of the action `erase`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "ErasedBody")]
    erased: Option<ErasedBody>,
}

/// Rows that an erasure has removed.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Erased")]
pub(crate) struct ErasedBody {
    /// Visits.
    visits: u64,
    /// User agents that may have lost their last visit: a daily job deletes those that have, after two days.
    agents: u64,
    /// Hourly counts of links, which were added to the totals of the links.
    counts: u64,
}

impl From<Erased> for ErasedBody {
    fn from(erased: Erased) -> Self {
        Self {
            visits: erased.visits,
            agents: erased.agents,
            counts: erased.counts,
        }
    }
}

/// The links that a job concerns: one of these members.
#[derive(Default, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "JobSelection")]
struct SelectionBody {
    /// Number of codes.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u64")]
    codes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    tag: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    external_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "words::CampaignId")]
    campaign_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "words::UploadId")]
    upload_id: Option<String>,
}

impl From<BulkJob> for JobBody {
    fn from(job: BulkJob) -> Self {
        let mut selection = SelectionBody::default();
        match job.selected_by {
            SelectedBy::Codes | SelectedBy::Other(Selection::Codes(_)) => {
                selection.codes = job.selected;
            }
            SelectedBy::Other(Selection::Tag(tag)) => selection.tag = Some(tag),
            SelectedBy::Other(Selection::ExternalId(id)) => selection.external_id = Some(id),
            SelectedBy::Other(Selection::Campaign(id)) => {
                selection.campaign_id = Some(id.to_string());
            }
            SelectedBy::Other(Selection::Upload(id)) => selection.upload_id = Some(id.to_string()),
        }
        Self {
            id: job.id,
            action: job.action.name(),
            selection,
            dry_run: job.is_trial,
            state: job.state.name(),
            reason: job.reason,
            selected: job.selected,
            done: job.counts.done(),
            changed: job.counts.changed,
            unchanged: job.counts.unchanged,
            failed: job.counts.failed,
            created_by: job.key_id,
            created_at: job.created_at,
            started_at: job.started_at,
            finished_at: job.finished_at,
            erased: (job.action == BulkAction::Erase).then(|| job.erased.into()),
        }
    }
}
