//! Telling why a code answers what it answers: what SQL has, what Redis has, whether they agree,
//! and which rule decides.
//!
//! It is looked at as the edge does: what stands in Redis counts, if it can be used, and SQL is
//! asked otherwise. What workers of nginx keep is left out: Redis has told them of changes.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use vocabulary::{Code, CodeRules, Phase, Record, RedirectStatus, Validity, Verdict};

use crate::clock::Clock;
use crate::core::campaign::Campaign;
use crate::core::link::{Destination, Link, State};
use crate::core::ports::{RecordIndex, Stood, StoreError};
use crate::core::records::{Drift, Records, Standing};
use crate::store::Store;

/// How long Redis is waited for.
const REDIS_LIMIT: Duration = Duration::from_secs(1);

/// Explains codes.
pub struct Explainer {
    /// Where links are.
    pub store: Arc<Store>,
    /// Where their records are.
    pub index: Arc<dyn RecordIndex>,
    /// Which codes there can be.
    pub rules: CodeRules,
    /// What time it is.
    pub clock: Arc<dyn Clock>,
}

/// What was found of a code.
#[derive(Clone, Debug)]
pub struct Explanation {
    /// When it was looked.
    pub at: Timestamp,
    /// The link in SQL.
    pub link: Option<Link>,
    /// The record that is to stand for it in Redis.
    pub wanted: Option<Vec<u8>>,
    /// Whether that waits to be told to Redis.
    pub waits: bool,
    /// What stands in Redis; `None` when Redis did not say.
    pub stood: Option<Stood>,
    /// How that differs from what is to stand there; `None` when it does not, or when either is
    /// not known.
    pub drift: Option<Drift>,
    /// The link's campaign.
    pub campaign: Option<Campaign>,
    /// Whether the campaign's record stands in Redis as it is to; `None` without a campaign and
    /// when Redis did not say.
    pub campaign_agrees: Option<bool>,
    /// What a visitor gets.
    pub answer: Answer,
}

/// What a visitor gets, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// Which rule decides.
    pub rule: Rule,
    /// Who knows.
    pub source: Source,
    /// How it redirects and where to, if it does. Where to is not known of a link of a campaign
    /// whose record is not that of SQL.
    pub redirect: Option<(RedirectStatus, Option<String>)>,
}

/// Who has said what a visitor gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// Nobody needs to be asked.
    Code,
    /// The record in Redis.
    Redis,
    /// SQL, since Redis has no record that could be used.
    Database,
}

/// Which rule decides what a visitor gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// The code's check character is wrong: 404 without looking for it.
    WrongCheck,
    /// There is no such link: 404.
    Unknown,
    /// Redis notes for a short while that there is no such link: 404.
    Negative,
    /// The link redirects.
    Live,
    /// The link's time has not come: 404.
    Scheduled,
    /// The link is paused: 410.
    Paused,
    /// The link's time has passed: 410.
    Expired,
    /// The link is revoked: 410.
    Revoked,
    /// Redis has a record which says that the link is gone, and SQL another: 410.
    Gone,
    /// The campaign's time has not come: 404.
    CampaignScheduled,
    /// The campaign is paused: 410.
    CampaignPaused,
    /// The campaign's time has passed: 410.
    CampaignExpired,
    /// The campaign is revoked: 410.
    CampaignRevoked,
    /// The link's campaign is missing, or makes no target of it: 503.
    NoTarget,
}

impl Rule {
    /// The rule's name.
    pub fn name(self) -> &'static str {
        match self {
            Self::WrongCheck => "wrong-check",
            Self::Unknown => "unknown",
            Self::Negative => "negative",
            Self::Live => "live",
            Self::Scheduled => "scheduled",
            Self::Paused => "paused",
            Self::Expired => "expired",
            Self::Revoked => "revoked",
            Self::Gone => "gone",
            Self::CampaignScheduled => "campaign-scheduled",
            Self::CampaignPaused => "campaign-paused",
            Self::CampaignExpired => "campaign-expired",
            Self::CampaignRevoked => "campaign-revoked",
            Self::NoTarget => "no-target",
        }
    }

    /// The status of the answer, unless it is a redirect.
    fn status(self) -> u16 {
        match self {
            Self::WrongCheck
            | Self::Unknown
            | Self::Negative
            | Self::Scheduled
            | Self::CampaignScheduled => 404,
            Self::Live | Self::NoTarget => 503,
            _ => 410,
        }
    }
}

impl Answer {
    /// The status that a visitor gets.
    pub fn status(&self) -> u16 {
        match &self.redirect {
            Some((status, _)) => status.code(),
            None => self.rule.status(),
        }
    }
}

impl Explainer {
    /// Looks at a code.
    ///
    /// # Errors
    /// When SQL fails. That Redis fails is told.
    pub async fn explain(&self, code: &Code) -> Result<Explanation, StoreError> {
        let now = self.clock.now();
        let link = self.store.find_link(code).await?;
        let campaign = match link.as_ref().and_then(|link| link.destination.campaign()) {
            Some(id) => self.store.find_campaign(id).await?,
            None => None,
        };
        let kept = match &link {
            Some(_) => Some(self.store.records_of(&[*code], now).await?),
            None => None,
        };
        let kept = kept.filter(|kept| !kept.records.is_empty());
        // SQL first: what was told to Redis by then is seen there.
        let stood = self.stood(code).await;
        let drift = match (&kept, &stood) {
            (Some(kept), Some(stood)) => drift(&kept.records, stood),
            _ => None,
        };
        let campaign_agrees = match &campaign {
            Some(campaign) => self.agrees(campaign).await,
            None => None,
        };
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
            answer: refusal(Rule::WrongCheck, Source::Code),
        };
        if self.rules.judge(code) != Verdict::WrongCheck {
            explanation.answer = explanation.decide();
        }
        Ok(explanation)
    }

    async fn stood(&self, code: &Code) -> Option<Stood> {
        let names = [code.as_bytes().to_vec()];
        let read = tokio::time::timeout(REDIS_LIMIT, self.index.read(&names)).await;
        read.ok()?.ok()?.pop()
    }

    async fn agrees(&self, campaign: &Campaign) -> Option<bool> {
        let campaigns = std::slice::from_ref(campaign);
        let compared = self.index.compare_campaigns(campaigns);
        let drifts = tokio::time::timeout(REDIS_LIMIT, compared).await.ok()?;
        Some(drifts.ok()?.is_empty())
    }
}

fn drift(records: &Records, stood: &Stood) -> Option<Drift> {
    let standing = match stood {
        Stood::Nothing => Standing::Nothing,
        Stood::Text(text) => Standing::Text(text),
        Stood::OtherType => Standing::OtherType,
    };
    records.drift(0, standing)
}

impl Explanation {
    /// Whether what stands in Redis is what SQL says, or means the same.
    fn is_same(&self) -> bool {
        self.link.is_some() && matches!(self.drift, None | Some(Drift::Long))
    }

    fn decide(&self) -> Answer {
        let Some(Stood::Text(text)) = &self.stood else {
            return self.by_database(Source::Database);
        };
        let (validity, target) = match Record::parse(text) {
            Err(_unusable) => return self.by_database(Source::Database),
            Ok(_) if self.is_same() => return self.by_database(Source::Redis),
            Ok(Record::Unknown) => return refusal(Rule::Negative, Source::Redis),
            Ok(Record::Revoked { .. }) => return refusal(Rule::Gone, Source::Redis),
            Ok(Record::Link(link)) => {
                let target = String::from_utf8_lossy(link.target).into_owned();
                (link.validity, Some((link.status, Some(target))))
            }
            Ok(Record::CampaignLink(link)) => (link.validity, None),
        };
        if let Some(rule) = self.out_of_time(validity) {
            return refusal(rule, Source::Redis);
        }
        match (target, &self.campaign) {
            (Some(redirect), _) => Answer {
                rule: Rule::Live,
                source: Source::Redis,
                redirect: Some(redirect),
            },
            (None, Some(campaign)) => match of_campaign(campaign.state(self.at)) {
                Some(rule) => refusal(rule, Source::Redis),
                None => Answer {
                    rule: Rule::Live,
                    source: Source::Redis,
                    redirect: Some((campaign.redirect_status, None)),
                },
            },
            (None, None) => refusal(Rule::NoTarget, Source::Redis),
        }
    }

    fn out_of_time(&self, validity: Validity) -> Option<Rule> {
        let second = u64::try_from(self.at.as_second()).unwrap_or_default();
        match validity.at(second) {
            Phase::Early => Some(Rule::Scheduled),
            Phase::Live => None,
            Phase::Over => Some(Rule::Expired),
        }
    }

    /// What is answered when it is as SQL says.
    fn by_database(&self, source: Source) -> Answer {
        let Some(link) = &self.link else {
            return refusal(Rule::Unknown, source);
        };
        let rule = match link.state(self.at) {
            State::Live => None,
            State::Scheduled => Some(Rule::Scheduled),
            State::Paused => Some(Rule::Paused),
            State::Expired => Some(Rule::Expired),
            State::Revoked => Some(Rule::Revoked),
        };
        let campaign = self.campaign.as_ref();
        let rule = rule.or_else(|| campaign.and_then(|it| of_campaign(it.state(self.at))));
        if let Some(rule) = rule {
            return refusal(rule, source);
        }
        let redirect = match (&link.destination, campaign) {
            (Destination::Target(target), _) => {
                Some((link.redirect_status, target.as_str().to_owned()))
            }
            (Destination::Campaign { values, .. }, Some(campaign)) => {
                let target = campaign.target.expand(&link.code, values).ok();
                target.map(|target| (campaign.redirect_status, target.as_str().to_owned()))
            }
            (Destination::Campaign { .. }, None) => None,
        };
        match redirect {
            None => refusal(Rule::NoTarget, source),
            Some((status, target)) => Answer {
                rule: Rule::Live,
                source,
                redirect: Some((status, Some(target))),
            },
        }
    }
}

fn refusal(rule: Rule, source: Source) -> Answer {
    Answer {
        rule,
        source,
        redirect: None,
    }
}

fn of_campaign(state: State) -> Option<Rule> {
    match state {
        State::Live => None,
        State::Scheduled => Some(Rule::CampaignScheduled),
        State::Paused => Some(Rule::CampaignPaused),
        State::Expired => Some(Rule::CampaignExpired),
        State::Revoked => Some(Rule::CampaignRevoked),
    }
}
