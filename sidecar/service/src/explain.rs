//! Explanations: the answer of a code, the rule that decides it, and a comparison of SQL with Redis.
//!
//! The answer is found as nginx finds it. The records in Redis decide if they can be used,
//! otherwise SQL does. The caches of nginx workers are left out: Redis notifies them of changes. For another time than
//! now SQL decides: Redis has the records of today.

mod visitor;

use std::slice;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use shortlink_core::boxed;
use shortlink_core::campaign::Campaign;
use shortlink_core::clock::Clock;
use shortlink_core::link::{Link, State, since_1970};
use shortlink_core::ports::{PublishError, RecordIndex, Stood, StoreError};
use shortlink_core::records::Drift;
use shortlink_store::Store;
use vocabulary::judge::{self, BadNews, judge};
use vocabulary::{
    CampaignId, CampaignLinkRecord, Code, CodeRules, Found, Instead, LinkRecord, MissReason, Plan,
    Record, Verdict,
};

use crate::resolve::{self, Spellings, chosen};

pub use visitor::{AssumedVisitor, Outcome, TriedRule};

/// Timeout of Redis.
const REDIS_LIMIT: Duration = Duration::from_secs(1);

/// Explains codes.
pub struct Explainer {
    /// Store of the links.
    pub store: Arc<Store>,
    /// Index of their records.
    pub index: Arc<dyn RecordIndex>,
    /// Rules for codes.
    pub rules: CodeRules,
    /// Clock.
    pub clock: Arc<dyn Clock>,
}

/// The explanation of a code.
#[derive(Clone, Debug)]
pub struct Explanation {
    /// Time for which the answer holds.
    pub at: Timestamp,
    /// The link in SQL.
    pub link: Option<Link>,
    /// The record that Redis should have.
    pub wanted: Option<Vec<u8>>,
    /// The change is pending in the outbox.
    pub waits: bool,
    /// The record in Redis; `None` when Redis did not answer.
    pub stood: Option<Stood>,
    /// Difference between the two records; `None` when there is none, or when either record is
    /// unknown.
    pub drift: Option<Drift>,
    /// The link's campaign.
    pub campaign: Option<Campaign>,
    /// The campaign's record in Redis is correct; `None` without a campaign and when Redis did not
    /// answer.
    pub campaign_agrees: Option<bool>,
    /// The answer to a visitor.
    pub answer: Answer,
}

/// The answer that visitors get, and the reason for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The rule that decides.
    pub rule: Rule,
    /// The source of the answer.
    pub source: Source,
    /// The answer, with the target of a redirect.
    pub given: judge::Answer<String>,
    /// The target stands instead of another answer.
    pub instead: Option<Instead>,
    /// The rules for visitors, in order; none if the answer does not depend on the visitor.
    pub tried: Vec<TriedRule>,
    /// The visitor is a preview agent and gets the page of the link's preview instead of the redirect.
    pub is_preview: bool,
}

/// The source of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// The code itself: no look-up is necessary.
    Code,
    /// The record in Redis.
    Redis,
    /// SQL, since Redis has no record that nginx can use.
    Database,
}

/// The rule that decides an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// The code's check character is wrong: 404 without a look-up.
    WrongCheck,
    /// There is no such link: 404.
    Unknown,
    /// Redis has a negative record: 404 for a short time.
    Negative,
    /// Redis has a revocation of the link or its campaign, and SQL does not: 410.
    Gone,
    /// The link's campaign is missing, or there is no target that can be served: 503.
    NoTarget,
    /// The state of the link.
    Link(State),
    /// The state of the link's campaign.
    Campaign(State),
}

impl Rule {
    /// The rule's name.
    pub fn name(self) -> &'static str {
        match self {
            Self::WrongCheck => "wrong-check",
            Self::Unknown => "unknown",
            Self::Negative => "negative",
            Self::Gone => "gone",
            Self::NoTarget => "no-target",
            Self::Link(state) => state.name(),
            Self::Campaign(State::Live) => "campaign-live",
            Self::Campaign(State::Scheduled) => "campaign-scheduled",
            Self::Campaign(State::Paused) => "campaign-paused",
            Self::Campaign(State::Expired) => "campaign-expired",
            Self::Campaign(State::Revoked) => "campaign-revoked",
        }
    }
}

impl Answer {
    /// Names the rule of an answer by the states of the link and its campaign; `None` is the state
    /// of a revocation that SQL does not have.
    fn new(
        given: judge::Answer<&[u8]>,
        source: Source,
        link: Option<State>,
        campaign: Option<State>,
        (tried, is_preview): (Vec<TriedRule>, bool),
    ) -> Self {
        let rule = match (given, link, campaign) {
            (
                judge::Answer::Redirect {
                    instead_of: None, ..
                },
                link,
                campaign,
            ) => match (link, campaign) {
                // The record of a pause is one that redirects.
                (Some(State::Paused), _) => Rule::Link(State::Paused),
                (_, Some(State::Paused)) => Rule::Campaign(State::Paused),
                _ => Rule::Link(State::Live),
            },
            (judge::Answer::Miss(_), ..) => Rule::NoTarget,
            (judge::Answer::Unknown, ..) if source == Source::Redis => Rule::Negative,
            (judge::Answer::Unknown, ..) => Rule::Unknown,
            (_, Some(State::Live), Some(state)) => Rule::Campaign(state),
            (_, Some(State::Live) | None, _) => Rule::Gone,
            (_, Some(state), _) => Rule::Link(state),
        };
        let instead = match (given, rule) {
            (judge::Answer::Redirect { instead_of, .. }, rule) => match instead_of {
                Some(BadNews::NotYet) => Some(Instead::NotYet),
                Some(BadNews::Gone | BadNews::Unknown) => Some(Instead::Expired),
                None => (rule != Rule::Link(State::Live)).then_some(Instead::Paused),
            },
            _ => None,
        };
        Self {
            rule,
            source,
            // A space is the place of the click id, which each visit has another of.
            given: given.map(visitor::shown),
            instead,
            tried,
            is_preview,
        }
    }

    /// The status of the response.
    pub fn status(&self) -> u16 {
        match &self.given {
            judge::Answer::Redirect { .. } if self.is_preview => 200,
            judge::Answer::Redirect { status, .. } => status.code(),
            judge::Answer::Gone => 410,
            judge::Answer::NotYet | judge::Answer::Unknown => 404,
            judge::Answer::Miss(_) => 503,
        }
    }

    /// The target of a redirect, or of the page of a preview.
    pub fn location(&self) -> Option<&str> {
        match &self.given {
            judge::Answer::Redirect { target, .. } => Some(target),
            _ => None,
        }
    }
}

impl Explainer {
    /// Explains the answer of a code to a visitor, now or at another time.
    ///
    /// # Errors
    /// Fails if SQL fails. A failure of Redis is part of the explanation.
    #[boxed]
    pub async fn explain(
        &self,
        code: &Code,
        visitor: &AssumedVisitor,
        at: Option<Timestamp>,
    ) -> Result<Explanation, StoreError> {
        let now = self.clock.now();
        let (code, stored) = self.find(code).await?;
        let code = &code;
        let (link, campaign) = stored.unzip();
        let campaign = campaign.flatten();
        let kept = match &link {
            Some(_) => Some(self.store.records_of(&[*code], now).await?),
            None => None,
        };
        let kept = kept.filter(|kept| !kept.records.is_empty());
        // SQL first: a change delivered to Redis by then is visible there.
        let names = [code.as_bytes().to_vec()];
        let stood = within(self.index.read(&names))
            .await
            .and_then(|mut it| it.pop());
        let drift = match (&kept, &stood) {
            (Some(kept), Some(stood)) => {
                let days = self.index.ended_days();
                kept.records.drift(0, stood.standing(), days)
            }
            _ => None,
        };
        // The record in Redis may name another campaign than SQL.
        let ids = Vec::from_iter(campaign_of(found(stood.as_ref())));
        let campaign_stood = within(self.index.read_campaigns(&ids)).await;
        let campaign_stood = campaign_stood.and_then(|mut it| it.pop());
        let campaign_agrees = match &campaign {
            Some(campaign) => within(self.index.compare_campaigns(slice::from_ref(campaign))).await,
            None => None,
        };
        let campaign_agrees = campaign_agrees.map(|drifts| drifts.is_empty());
        let (records, waits) = match kept {
            Some(kept) => (Some(kept.records), kept.waiting.first() == Some(&true)),
            None => (None, false),
        };
        let mut explanation = Explanation {
            at: at.unwrap_or(now),
            wanted: records.map(|records| records.get(0).text.to_vec()),
            link,
            waits,
            stood,
            drift,
            campaign,
            campaign_agrees,
            answer: Answer {
                rule: Rule::WrongCheck,
                source: Source::Code,
                given: judge::Answer::Unknown,
                instead: None,
                tried: Vec::new(),
                is_preview: false,
            },
        };
        if self.rules.judge(code) != Verdict::WrongCheck {
            explanation.answer = match at {
                None => explanation.of_redis(code, campaign_stood.as_ref(), visitor),
                Some(_) => None,
            }
            .unwrap_or_else(|| explanation.of_sql(code, visitor));
        }
        Ok(explanation)
    }

    /// Finds the link of the text that a path names, and its code; without a link the text.
    async fn find(
        &self,
        text: &Code,
    ) -> Result<(Code, Option<(Link, Option<Campaign>)>), StoreError> {
        let mut spellings = Spellings::new(&self.rules, text);
        while let Some(code) = spellings.next(&self.store).await? {
            if let Some(found) = resolve::find(&self.store, &code).await? {
                return Ok((code, Some(found)));
            }
        }
        Ok((*text, None))
    }
}

/// Waits for an answer of Redis; `None` when it did not answer.
async fn within<T>(ask: impl Future<Output = Result<T, PublishError>>) -> Option<T> {
    tokio::time::timeout(REDIS_LIMIT, ask).await.ok()?.ok()
}

/// The record that was read from Redis.
fn found(stood: Option<&Stood>) -> Found<'_> {
    stood.map_or(Err(MissReason::Unavailable), |stood| {
        stood.standing().record()
    })
}

/// The campaign that a link's record names.
fn campaign_of(link: Found<'_>) -> Option<CampaignId> {
    match link {
        Ok(Record::CampaignLink(link)) => Some(link.campaign),
        _ => None,
    }
}

/// The state that a record implies, unless it is a revocation.
fn implied(record: Found<'_>, now: u64) -> Option<State> {
    match record {
        Ok(
            Record::Link(LinkRecord { validity, .. })
            | Record::CampaignLink(CampaignLinkRecord { validity, .. }),
        ) => Some(State::new(validity.at(now), false, false)),
        Ok(Record::Revoked { .. } | Record::Unknown { .. }) | Err(_) => None,
    }
}

impl Explanation {
    /// The states of the link and the campaign in SQL.
    fn states(&self) -> (Option<State>, Option<State>) {
        (
            self.link.as_ref().map(|link| link.state(self.at)),
            self.campaign.as_ref().map(|it| it.state(self.at)),
        )
    }

    /// Judges the records in Redis as the edge does; `None` if it cannot use them.
    fn of_redis(
        &self,
        code: &Code,
        campaign_stood: Option<&Stood>,
        visitor: &AssumedVisitor,
    ) -> Option<Answer> {
        let now = since_1970(self.at);
        let (link, campaign) = (found(self.stood.as_ref()), found(campaign_stood));
        let mut room = Vec::new();
        let given = judge(code, link, campaign, now, &mut room);
        if matches!(given, judge::Answer::Miss(_)) {
            return None;
        }
        let is_same = self.drift.is_none_or(Drift::is_harmless);
        let is_named = campaign_of(link) == self.campaign.as_ref().map(|it| it.id);
        let agrees = is_named && self.campaign_agrees == Some(true);
        let (link_state, campaign_state) = self.states();
        let link = link_state.filter(|_| is_same).or(implied(link, now));
        let campaign = campaign_state.filter(|_| agrees).or(implied(campaign, now));
        let (given, tried) = self.for_visitor(given, code, visitor);
        Some(Answer::new(given, Source::Redis, link, campaign, tried))
    }

    /// Judges the records that SQL implies, as the fallback does.
    fn of_sql(&self, code: &Code, visitor: &AssumedVisitor) -> Answer {
        let unknown = Record::Unknown { generation: 0 };
        let link = self.link.as_ref().map_or(unknown, Link::record);
        let campaign = self.campaign.as_ref().map(Campaign::record);
        let campaign = campaign.ok_or(MissReason::Absent);
        let mut room = Vec::new();
        let given = judge(code, Ok(link), campaign, since_1970(self.at), &mut room);
        let (link, campaign) = self.states();
        let (given, tried) = self.for_visitor(given, code, visitor);
        Answer::new(given, Source::Database, link, campaign, tried)
    }

    /// The answer to a visitor, the rules that were tried for it, and whether it gets the page of a preview.
    fn for_visitor<'a>(
        &self,
        given: judge::Answer<&'a [u8]>,
        code: &Code,
        visitor: &AssumedVisitor,
    ) -> (judge::Answer<&'a [u8]>, (Vec<TriedRule>, bool)) {
        let now = since_1970(self.at);
        let tried = match given {
            judge::Answer::Redirect {
                is_plan: true,
                target,
                ..
            } => visitor::tried(Plan::from_checked(target), code, visitor, now),
            _ => Vec::new(),
        };
        let (given, choice) = chosen(given, code, visitor, now);
        let is_preview = choice.is_some_and(|choice| choice.preview.is_some());
        (given, (tried, is_preview))
    }
}

#[cfg(test)]
mod tests;
