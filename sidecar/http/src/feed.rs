//! `GET /v1/visits?after=…`: stored visits in their order, each exactly once.

use std::time::Duration;

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::json;
use shortlink_core::ports::{ExportedVisit, MOST_EXAMINED};
use shortlink_core::visit::class::Class;
use shortlink_service::feed::{FeedPage, Reading};
use shortlink_service::live::Full;
use tokio::time::Instant;
use vocabulary::{CampaignId, Code};

use super::app::SharedApp;
use super::auth::{Admission, own_ids};
use super::operation::parameter::{number, parameters};
use super::problem::Problem;
use super::query::{DEFAULT_LIMIT, MAX_LIMIT, values};
use super::visits::{VisitBody, VisitQuery};
use super::{cursor, words};

/// The longest wait for visits.
const LONGEST_WAIT_S: u32 = 30;

/// The position behind the visits that are stored now.
const NOW: &str = "now";

parameters! {
    pub(super) AFTER: query "after", "After",
        "Position in the feed: the nextCursor of an earlier page; `now` for visits that are stored from now on; empty for \
         all visits that are still stored. Cannot be combined with cursor, since, until and raw.",
        |_| json!({ "type": "string", "pattern": "^[-0-9A-Za-z_]*$" });
    pub(super) WAIT: query "wait", "Wait",
        "Number of seconds to wait for visits if the feed has none after the position. Needs after.",
        |_| number(0, LONGEST_WAIT_S.into(), 0);
}

/// The seconds that a request waits.
pub(super) struct Wait(u32);

values! {
    Wait: |text| text.parse().ok().filter(|it| *it <= LONGEST_WAIT_S).map(Wait),
        format!("a number of seconds from 0 to {LONGEST_WAIT_S}");
}

/// A visit of the feed.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "FeedVisit")]
pub(super) struct FeedVisitBody {
    /// Id of the visit, the same in each answer and in exports to a warehouse.
    id: String,
    /// The caller's id of the link; null if the link has none, or was deleted.
    external_id: Option<String>,
    /// Campaign that the visit was counted for.
    #[schemars(with = "Option<words::CampaignId>")]
    campaign_id: Option<String>,
    #[serde(flatten)]
    visit: VisitBody,
}

impl From<ExportedVisit> for FeedVisitBody {
    fn from(it: ExportedVisit) -> Self {
        Self {
            id: it.visit.number.to_string(),
            external_id: it.external_id,
            campaign_id: it.campaign.map(|id| id.to_string()),
            visit: VisitBody(it.visit),
        }
    }
}

/// A page of the feed.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "FeedPage")]
pub(super) struct FeedBody {
    /// The visits, in the order in which they were stored.
    visits: Vec<FeedVisitBody>,
    /// Position after these visits.
    next_cursor: String,
}

/// Reports that no request can wait any more.
pub(super) fn no_place(full: Full) -> Problem {
    Problem::unavailable(match full {
        Full::All => "Too many requests wait for visits (visits.live_listeners).",
        Full::OfKey => {
            "Too many requests of this API key wait for visits (visits.live_listeners_per_key)."
        }
    })
}

/// The visits of the feed that a request asks for.
struct Selected {
    class: Option<Class>,
    code: Option<Code>,
    campaign: Option<CampaignId>,
    /// The keys whose links the caller reaches; `None` if it reaches all.
    own: Option<Vec<String>>,
    limit: usize,
}

impl Selected {
    fn of(admission: &Admission, asked: &VisitQuery) -> Self {
        Self {
            class: asked.class,
            code: asked.code,
            campaign: asked.campaign,
            own: own_ids(admission.caller()),
            limit: asked.limit.as_ref().map_or(DEFAULT_LIMIT, |limit| limit.0) as usize,
        }
    }

    /// The number of visits to read at a time.
    fn together(&self) -> u32 {
        let takes_all = self.class.is_none()
            && self.code.is_none()
            && self.campaign.is_none()
            && self.own.is_none();
        if takes_all {
            self.limit as u32
        } else {
            MAX_LIMIT
        }
    }

    fn has(&self, it: &ExportedVisit) -> bool {
        self.class
            .is_none_or(|class| it.visit.class == class.name())
            && self
                .code
                .is_none_or(|code| it.visit.code == code.to_string())
            && self
                .campaign
                .is_none_or(|campaign| it.campaign == Some(campaign))
            && self.own.as_ref().is_none_or(|own| {
                let created_by = it.created_by.as_ref();
                created_by.is_some_and(|created_by| own.contains(created_by))
            })
    }

    /// Adds the selected visits of a portion to a page.
    fn take(&self, portion: FeedPage, page: &mut FeedPage) {
        page.next = portion.next;
        let selected = portion.visits.into_iter().filter(|it| self.has(it));
        page.visits.extend(selected);
        if page.visits.len() > self.limit {
            page.visits.truncate(self.limit);
            page.next = page.visits.last().map_or(page.next, |it| it.visit.number);
        }
    }
}

/// Reads a page of the feed, or waits for one.
pub(super) async fn page(
    app: &SharedApp,
    admission: &Admission,
    after: String,
    asked: VisitQuery,
) -> Result<FeedBody, Problem> {
    for (is_given, name) in [
        (asked.cursor.is_some(), "cursor"),
        (asked.since.is_some(), "since"),
        (asked.until.is_some(), "until"),
        (asked.raw.is_some(), "raw"),
    ] {
        if is_given {
            return Err(Problem::query(format!(
                "{name} cannot be combined with after."
            )));
        }
    }
    let feed = &app.feed;
    let next = match &*after {
        "" => 0,
        NOW => feed.last().await?,
        _ => {
            let number =
                cursor::decode(cursor::FEED, Some(after)).map_err(|_problem| bad_after())?;
            let number: Option<i64> = number.filter(|number| *number >= 0);
            number.ok_or_else(bad_after)?
        }
    };
    let selected = Selected::of(admission, &asked);
    let seconds = asked.wait.map_or(0, |wait| wait.0);
    let deadline = Instant::now() + Duration::from_secs(seconds.into());
    let together = selected.together();
    let mut page = FeedPage {
        visits: Vec::new(),
        next,
    };
    let mut examined = 0;
    let mut place = None;
    loop {
        match feed.read(page.next, together).await? {
            Reading::Ahead => return Err(Problem::cursor_ahead()),
            Reading::Page(portion) => {
                selected.take(portion, &mut page);
                examined += together;
                if page.visits.len() >= selected.limit || examined >= MOST_EXAMINED {
                    break;
                }
            }
            Reading::End => {
                if !page.visits.is_empty() || Instant::now() >= deadline {
                    break;
                }
                if place.is_none() {
                    place = Some(feed.place(&admission.caller().key().id).map_err(no_place)?);
                }
                if !feed.wait(deadline).await {
                    break;
                }
            }
        }
    }
    if place.is_some() && !admission.still_holds(app).await {
        return Err(Problem::unauthorized());
    }
    Ok(FeedBody {
        visits: page.visits.into_iter().map(FeedVisitBody::from).collect(),
        next_cursor: cursor::encode(cursor::FEED, page.next),
    })
}

fn bad_after() -> Problem {
    Problem::query("after must be the nextCursor of an earlier page of the feed, now, or empty.")
}
