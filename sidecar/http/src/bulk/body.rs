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
    /// Number of links that were changed; with `dryRun`, that would be changed.
    changed: u64,
    /// Number of links that needed no change.
    unchanged: u64,
    /// Number of links that could not be changed, and of codes without a link.
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
    /// Places that an erasure does not reach; only of the action `erase`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "&'static [Elsewhere]")]
    elsewhere: Option<&'static [Elsewhere]>,
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

/// A place that an erasure does not reach.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "ErasureElsewhere")]
pub(crate) struct Elsewhere {
    /// The place.
    place: &'static str,
    /// The longest life of the data there.
    until: &'static str,
}

/// The places that an erasure does not reach. The service does not know how long they are stored.
pub(crate) const ELSEWHERE: &[Elsewhere] = &[
    Elsewhere {
        place: "visits in Redis and in files of nginx that are not stored yet",
        until: "their arrival at a sidecar, which drops them",
    },
    Elsewhere {
        place: "counts of human visits by minute, short domain and network, without links",
        until: "three hours after the visits",
    },
    Elsewhere {
        place: "events in the table visit_quarantine, which cannot be read",
        until: "visits.retention_days after their arrival, or deletion by hand",
    },
    Elsewhere {
        place: "append-only file and snapshots of Redis",
        until: "the next rewrite of the file: BGREWRITEAOF, and BGSAVE",
    },
    Elsewhere {
        place: "endpoints of webhooks that got the visits, and messages to them that are under way",
        until: "their deletion there",
    },
    Elsewhere {
        place: "access logs of nginx",
        until: "their rotation and deletion",
    },
    Elsewhere {
        place: "write-ahead log of SQLite; dead rows and write-ahead log of PostgreSQL",
        until: "a checkpoint; VACUUM of the table visits",
    },
    Elsewhere {
        place: "backups and exports",
        until: "their deletion; erase again after a restore",
    },
];

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
        let is_erasure = job.action == BulkAction::Erase;
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
            erased: is_erasure.then(|| job.erased.into()),
            elsewhere: is_erasure.then_some(ELSEWHERE),
        }
    }
}
