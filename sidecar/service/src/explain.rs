//! Explanations: the answer of a code, the rule that decides it, and a comparison of SQL with Redis.
//!
//! The answer is found as nginx finds it. The records in Redis decide if they can be used,
//! otherwise SQL does. The caches of nginx workers are left out: Redis notifies them of changes.

use std::slice;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use shortlink_core::campaign::Campaign;
use shortlink_core::clock::Clock;
use shortlink_core::link::{Link, State, since_1970};
use shortlink_core::ports::{PublishError, RecordIndex, Stood, StoreError};
use shortlink_core::records::Drift;
use shortlink_store::Store;
use vocabulary::judge::{self, judge};
use vocabulary::{
    CampaignId, CampaignLinkRecord, Code, CodeRules, Found, LinkRecord, MissReason, Plan, Record,
    Verdict,
};

use crate::resolve;

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
    /// Time of the explanation.
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
    ) -> Self {
        let rule = match (given, link, campaign) {
            (
                judge::Answer::Redirect {
                    instead_of: None, ..
                },
                ..,
            ) => Rule::Link(State::Live),
            (judge::Answer::Miss(_), ..) => Rule::NoTarget,
            (judge::Answer::Unknown, ..) if source == Source::Redis => Rule::Negative,
            (judge::Answer::Unknown, ..) => Rule::Unknown,
            (_, Some(State::Live), Some(state)) => Rule::Campaign(state),
            (_, Some(State::Live) | None, _) => Rule::Gone,
            (_, Some(state), _) => Rule::Link(state),
        };
        let target = |target| match given {
            // The target of visitors for whom no rule fits.
            judge::Answer::Redirect { is_plan: true, .. } => {
                Plan::from_checked(target).target().unwrap_or_default()
            }
            _ => target,
        };
        Self {
            rule,
            source,
            // A space is the place of the click id, which each visit has another of.
            given: given.map(|text| {
                let text = String::from_utf8_lossy(target(text));
                text.replace(' ', "{clickId}")
            }),
        }
    }

    /// The status of the response.
    pub fn status(&self) -> u16 {
        match &self.given {
            judge::Answer::Redirect { status, .. } => status.code(),
            judge::Answer::Gone => 410,
            judge::Answer::NotYet | judge::Answer::Unknown => 404,
            judge::Answer::Miss(_) => 503,
        }
    }

    /// The target of a redirect.
    pub fn location(&self) -> Option<&str> {
        match &self.given {
            judge::Answer::Redirect { target, .. } => Some(target),
            _ => None,
        }
    }
}

impl Explainer {
    /// Explains a code.
    ///
    /// # Errors
    /// Fails if SQL fails. A failure of Redis is part of the explanation.
    pub async fn explain(&self, code: &Code) -> Result<Explanation, StoreError> {
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
            at: now,
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
            },
        };
        if self.rules.judge(code) != Verdict::WrongCheck {
            explanation.answer = explanation.decide(code, campaign_stood.as_ref());
        }
        Ok(explanation)
    }

    /// Finds the link of the text that a path names, and its code; without a link the text.
    async fn find(
        &self,
        text: &Code,
    ) -> Result<(Code, Option<(Link, Option<Campaign>)>), StoreError> {
        for candidate in self.rules.candidates(text) {
            let own = resolve::own_spelling(&self.store, &self.rules, &candidate).await?;
            for code in [Some(candidate), own].into_iter().flatten() {
                if let Some(found) = resolve::find(&self.store, &code).await? {
                    return Ok((code, Some(found)));
                }
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
    /// Judges the records in Redis as the edge does, and those that SQL implies when Redis does not
    /// answer.
    fn decide(&self, code: &Code, campaign_stood: Option<&Stood>) -> Answer {
        let now = since_1970(self.at);
        let link_state = self.link.as_ref().map(|link| link.state(self.at));
        let campaign_state = self.campaign.as_ref().map(|it| it.state(self.at));
        let mut room = Vec::new();

        let (link, campaign) = (found(self.stood.as_ref()), found(campaign_stood));
        let given = judge(code, link, campaign, now, &mut room);
        if !matches!(given, judge::Answer::Miss(_)) {
            let is_same = self.drift.is_none_or(Drift::is_harmless);
            let is_named = campaign_of(link) == self.campaign.as_ref().map(|it| it.id);
            let agrees = is_named && self.campaign_agrees == Some(true);
            let link = link_state.filter(|_| is_same).or(implied(link, now));
            let campaign = campaign_state.filter(|_| agrees).or(implied(campaign, now));
            return Answer::new(given, Source::Redis, link, campaign);
        }
        let unknown = Record::Unknown { generation: 0 };
        let link = self.link.as_ref().map_or(unknown, Link::record);
        let campaign = self.campaign.as_ref().map(Campaign::record);
        let campaign = campaign.ok_or(MissReason::Absent);
        let given = judge(code, Ok(link), campaign, now, &mut room);
        Answer::new(given, Source::Database, link_state, campaign_state)
    }
}

#[cfg(test)]
mod tests;
