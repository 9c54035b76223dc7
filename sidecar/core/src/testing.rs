//! Tools for tests of this crate and of those that depend on it: a Redis in memory that can be taken away, a clock
//! that stands still, links and campaigns.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;
use tokio::sync::mpsc;
use vocabulary::{CampaignId, Code, Record, RedirectStatus};

use crate::audit::{Action, ChangedBy};
use crate::campaign::{Campaign, CampaignTarget};
use crate::clock::Clock;
use crate::ended::{EndedDays, Stay};
use crate::link::{Destination, Link};
use crate::ports::{
    DataSet, Filled, Mark, PublishError, Published, Publisher, RecordIndex, Session, Stood,
};
use crate::records::{Drift, Records, Standing};
use crate::target::Target;
use crate::visit::Enrichment;
use crate::visit::address::AddressPolicy;
use crate::visit::agent::{Agent, Agents};
use crate::visit::class::Words;
use crate::visit::place::{Place, Places};

/// Generated files are written instead of compared when this variable of the environment is set.
const RENEW: &str = "SHORTLINK_RENEW";

/// Holds a file of the repository, named by its path from the root, to the text that is generated for it.
pub fn assert_generated(path: &str, text: &str) {
    let file = std::path::Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .join(path);
    if std::env::var_os(RENEW).is_some() {
        std::fs::write(&file, text).expect("the file can be written");
    }
    let kept = std::fs::read_to_string(&file).unwrap_or_default();
    assert!(
        kept == text,
        "{path} is not what the code generates: run the test again with {RENEW}=1"
    );
}

/// Parses a moment.
pub fn moment(text: &str) -> Timestamp {
    text.parse().expect("a moment")
}

/// A live link with a code.
pub fn link(code: &str) -> Link {
    Link {
        code: code.parse().expect("a code"),
        destination: Destination::Target(Target::from_stored("https://example.com/a".to_owned())),
        redirect_status: RedirectStatus::Found,
        forward_query: false,
        plan: None,
        revision: 1,
        valid_since: None,
        valid_until: None,
        max_visits: None,
        paused_at: None,
        revoked_at: None,
        created_at: moment("2026-01-01T00:00:00Z"),
        updated_at: moment("2026-01-01T00:00:00Z"),
        created_by: "key".to_owned(),
        domain: None,
        external_id: None,
        note: None,
        tags: Vec::new(),
        upload: None,
        strategy: None,
    }
}

/// A campaign with one parameter, and no id of its own yet.
pub fn campaign() -> Campaign {
    let target = CampaignTarget::from_stored(
        "https://example.com/{0}".to_owned(),
        vec!["member".to_owned()],
    );
    let created_at = moment("2026-01-01T00:00:00Z");
    Campaign::new("Spring".to_owned(), target, "key".to_owned(), created_at)
}

/// A line of `golden/agents.tsv`. `-` stands for nothing.
pub struct Golden {
    /// The column of that name.
    pub class: String,
    /// The column of that name.
    pub reason: String,
    /// The column of that name.
    pub app: String,
    /// The column of that name.
    pub device: String,
    /// The column of that name.
    pub browser: String,
    /// The column of that name.
    pub os: String,
    /// The column of that name.
    pub user_agent: String,
}

/// User agents with their expected attributes.
pub fn golden() -> Vec<Golden> {
    let lines = include_str!("../../golden/agents.tsv").lines();
    let lines = lines.filter(|line| !line.starts_with('#'));
    let lines = lines.map(|line| {
        let fields: Vec<String> = line.split('\t').map(str::to_owned).collect();
        let [class, reason, app, device, browser, os, user_agent] =
            fields.try_into().expect("seven fields");
        Golden {
            class,
            reason,
            app,
            device,
            browser,
            os,
            user_agent,
        }
    });
    lines.collect()
}

/// A clock that stands still until a test moves it.
#[derive(Debug)]
pub struct ManualClock(std::sync::Mutex<Timestamp>);

impl ManualClock {
    /// A clock that shows this moment.
    pub fn at(moment: &str) -> Self {
        Self(std::sync::Mutex::new(moment.parse().expect("a moment")))
    }

    /// Moves it.
    pub fn advance(&self, by: jiff::SignedDuration) {
        let mut now = self.0.lock().expect("no holder panics");
        *now += by;
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        *self.0.lock().expect("no holder panics")
    }

    fn elapsed(&self) -> Duration {
        let since_1970 = self.now().duration_since(Timestamp::UNIX_EPOCH);
        since_1970.try_into().expect("a moment after 1970")
    }
}

/// A Redis in memory.
#[derive(Default)]
pub struct MemoryPublisher {
    records: Mutex<HashMap<Code, Vec<u8>>>,
    counters: Mutex<HashMap<String, u64>>,
    /// Revisions and records.
    campaigns: Mutex<HashMap<CampaignId, (u64, Vec<u8>)>>,
    /// Generation, watermark and beat.
    mark: Mutex<Option<[u64; 3]>>,
    is_away: AtomicBool,
    is_full: AtomicBool,
    incarnation: AtomicU32,
    /// The days for which records of ended links stay.
    ended_days: AtomicU32,
}

impl MemoryPublisher {
    /// Generation, watermark and beat of the data set.
    pub fn shown(&self) -> Option<[u64; 3]> {
        *self.mark.lock().expect("no holder panics")
    }

    /// Shows an earlier mark, though it was not started again.
    pub fn set_mark(&self, mark: [u64; 3]) {
        *self.mark.lock().expect("no holder panics") = Some(mark);
    }

    /// Another server takes over, with the same data but a mark of its own, as a replica that lags.
    pub fn fall_back(&self, mark: Option<[u64; 3]>) {
        self.incarnation.fetch_add(1, Ordering::SeqCst);
        *self.mark.lock().expect("no holder panics") = mark;
    }

    /// Takes it away or brings it back.
    pub fn set_away(&self, is_away: bool) {
        self.is_away.store(is_away, Ordering::SeqCst);
    }

    /// Lets it refuse records, or take them again.
    pub fn set_full(&self, is_full: bool) {
        self.is_full.store(is_full, Ordering::SeqCst);
    }

    /// Starts it again with nothing in it.
    pub fn restart(&self) {
        self.incarnation.fetch_add(1, Ordering::SeqCst);
        self.records.lock().expect("no holder panics").clear();
        self.counters.lock().expect("no holder panics").clear();
        self.campaigns.lock().expect("no holder panics").clear();
        *self.mark.lock().expect("no holder panics") = None;
    }

    /// Lets the records of ended links stay for some days.
    pub fn set_ended_days(&self, days: u32) {
        self.ended_days.store(days, Ordering::SeqCst);
    }

    fn session(&self) -> Session {
        Session(u64::from(self.incarnation.load(Ordering::SeqCst)) + 1)
    }

    /// The record of a code.
    pub fn record(&self, code: &str) -> Option<String> {
        let records = self.records.lock().expect("no holder panics");
        let record = records.get(&code.parse().expect("a code"))?;
        Some(String::from_utf8(record.clone()).expect("a readable record"))
    }

    /// Writes a text under a code, whatever stands there.
    pub fn set_record(&self, code: &str, text: impl Into<Vec<u8>>) {
        let mut records = self.records.lock().expect("no holder panics");
        records.insert(code.parse().expect("a code"), text.into());
    }

    /// Loses the record of a code.
    pub fn lose(&self, code: &str) {
        let mut records = self.records.lock().expect("no holder panics");
        records.remove(&code.parse().expect("a code"));
    }

    /// Writes a text under the key of a campaign, or loses the one that stands there.
    pub fn set_campaign_record(&self, id: CampaignId, text: Option<&[u8]>) {
        let mut campaigns = self.campaigns.lock().expect("no holder panics");
        match text {
            Some(text) => campaigns.insert(id, (0, text.to_vec())),
            None => campaigns.remove(&id),
        };
    }

    /// The record of a campaign.
    pub fn campaign_record(&self, id: &str) -> Option<String> {
        let campaigns = self.campaigns.lock().expect("no holder panics");
        let (_, record) = campaigns.get(&CampaignId::parse(id.as_bytes())?)?;
        Some(String::from_utf8(record.clone()).expect("a readable record"))
    }

    fn check(&self, operation: &'static str) -> Result<(), PublishError> {
        if self.is_away.load(Ordering::SeqCst) {
            return Err(PublishError::Away { operation });
        }
        Ok(())
    }
}

#[async_trait]
impl Publisher for MemoryPublisher {
    async fn publish(&self, links: &[Link]) -> Result<Published, PublishError> {
        self.check("store link records")?;
        if self.is_full.load(Ordering::SeqCst) {
            return Err(PublishError::Away {
                operation: "store link records",
            });
        }
        let mut records = self.records.lock().expect("no holder panics");
        let mut newer = Vec::new();
        for (place, link) in links.iter().enumerate() {
            let standing = match records.get(&link.code).map(|record| Record::parse(record)) {
                Some(Ok(Record::Link(standing))) => standing.revision,
                Some(Ok(Record::CampaignLink(standing))) => standing.revision,
                Some(Ok(Record::Revoked { revision })) => revision,
                _ => 0,
            };
            if standing <= link.revision {
                records.insert(link.code, link.record().to_vec());
            } else {
                newer.push((place, standing));
            }
        }
        let session = self.session();
        Ok(Published {
            session,
            newer,
            ..Published::default()
        })
    }

    async fn publish_new(&self, links: &[Link]) -> Result<Published, PublishError> {
        self.publish(links).await
    }

    async fn publish_campaigns(&self, campaigns: &[Campaign]) -> Result<Published, PublishError> {
        self.check("store campaigns' records")?;
        let mut kept = self.campaigns.lock().expect("no holder panics");
        let mut newer = Vec::new();
        for (place, campaign) in campaigns.iter().enumerate() {
            let standing = kept.get(&campaign.id).map_or(0, |(revision, _)| *revision);
            if standing <= campaign.revision {
                kept.insert(campaign.id, (campaign.revision, campaign.record().to_vec()));
            } else {
                newer.push((place, standing));
            }
        }
        let session = self.session();
        Ok(Published {
            session,
            newer,
            ..Published::default()
        })
    }

    async fn inspect(&self) -> Result<(Session, DataSet), PublishError> {
        let incarnation = self.incarnation().await?;
        let seen = DataSet {
            incarnation,
            standing: self
                .shown()
                .map(|[generation, watermark, _]| (generation, watermark)),
            is_whole: self.shown().is_some(),
            is_nearly_empty: self.records.lock().expect("no holder panics").is_empty(),
        };
        Ok((self.session(), seen))
    }

    async fn mark(&self, mark: &Mark) -> Result<bool, PublishError> {
        self.check("mark the data set")?;
        if mark.session != self.session() {
            return Err(PublishError::Away {
                operation: "mark the data set",
            });
        }
        if mark.incarnation != self.incarnation().await? {
            return Ok(false);
        }
        let mut stands = self.mark.lock().expect("no holder panics");
        let [generation, watermark, beats] = stands.unwrap_or_default();
        let has_gone_back = mark.stands.is_some_and(|(stood, least)| {
            (generation != stood && generation != mark.generation)
                || (generation == stood && watermark < least)
        });
        if generation > mark.generation || has_gone_back {
            return Ok(false);
        }
        let least = if generation == mark.generation {
            watermark
        } else {
            0
        };
        let beats = beats + u64::from(mark.beat);
        *stands = Some([mark.generation, mark.watermark.max(least), beats]);
        Ok(true)
    }

    async fn advance(&self, counter: &str, floor: u64, by: u64) -> Result<u64, PublishError> {
        self.check("count")?;
        let mut counters = self.counters.lock().expect("no holder panics");
        let counter = counters.entry(counter.to_owned()).or_default();
        *counter = (*counter).max(floor) + by;
        Ok(*counter)
    }

    async fn note_unknown(&self, code: &Code) -> Result<(), PublishError> {
        self.check("store a negative record")?;
        let mut records = self.records.lock().expect("no holder panics");
        records
            .entry(*code)
            .or_insert_with(|| Record::Unknown { generation: 0 }.to_vec());
        Ok(())
    }
}

#[async_trait]
impl RecordIndex for MemoryPublisher {
    fn ended_days(&self) -> EndedDays {
        EndedDays(self.ended_days.load(Ordering::SeqCst))
    }

    async fn fill(&self, records: &Records) -> Result<Filled, PublishError> {
        let drifts = self.compare(records).await?;
        let mut filled = Filled {
            same: (records.len() - drifts.len()) as u64,
            ..Filled::default()
        };
        let mut standing = self.records.lock().expect("no holder panics");
        for (place, drift) in drifts {
            match drift {
                Drift::Newer(_) => {
                    filled.newer += 1;
                    continue;
                }
                Drift::Missing => filled.added += 1,
                _ => filled.replaced += 1,
            }
            let wanted = records.get(place);
            // Here no time passes: what Redis has only for a moment is gone.
            match records.stay(place, self.ended_days()) {
                Stay::Over => standing.remove(&wanted.code),
                _ => standing.insert(wanted.code, wanted.text.to_vec()),
            };
        }
        Ok(filled)
    }

    async fn compare(&self, records: &Records) -> Result<Vec<(usize, Drift)>, PublishError> {
        self.check("read link records")?;
        let standing = self.records.lock().expect("no holder panics");
        let drifts = (0..records.len()).filter_map(|place| {
            let text = standing.get(&records.get(place).code);
            let standing = text.map_or(Standing::Nothing, |text| Standing::Text(text));
            Some((place, records.drift(place, standing, self.ended_days())?))
        });
        Ok(drifts.collect())
    }

    async fn fill_campaigns(&self, campaigns: &[Campaign]) -> Result<Vec<usize>, PublishError> {
        let drifts = self.compare_campaigns(campaigns).await?;
        let newer = drifts
            .iter()
            .filter_map(|(place, drift)| matches!(drift, Drift::Newer(_)).then_some(*place));
        let newer: Vec<usize> = newer.collect();
        self.publish_campaigns(campaigns).await?;
        Ok(newer)
    }

    async fn read_campaigns(&self, ids: &[CampaignId]) -> Result<Vec<Stood>, PublishError> {
        self.check("read the records of campaigns")?;
        let standing = self.campaigns.lock().expect("no holder panics");
        let stood = ids.iter().map(|id| match standing.get(id) {
            Some((_, text)) => Stood::Text(text.clone()),
            None => Stood::Nothing,
        });
        Ok(stood.collect())
    }

    async fn scan(&self, pages: mpsc::Sender<Vec<Vec<u8>>>) -> Result<(), PublishError> {
        self.check("list the keys of link records")?;
        let names: Vec<Vec<u8>> = {
            let records = self.records.lock().expect("no holder panics");
            records
                .keys()
                .map(|code| code.as_bytes().to_vec())
                .collect()
        };
        let _ = pages.send(names).await;
        Ok(())
    }

    async fn read(&self, names: &[Vec<u8>]) -> Result<Vec<Stood>, PublishError> {
        self.check("read link records")?;
        let records = self.records.lock().expect("no holder panics");
        let stood = names.iter().map(|name| {
            let text = Code::parse(name).ok().and_then(|code| records.get(&code));
            text.map_or(Stood::Nothing, |text| Stood::Text(text.clone()))
        });
        Ok(stood.collect())
    }

    async fn remove(&self, read: &[(Vec<u8>, Stood)]) -> Result<u64, PublishError> {
        self.check("remove link records")?;
        let mut records = self.records.lock().expect("no holder panics");
        let before = records.len();
        for (name, stood) in read {
            let code = Code::parse(name).expect("a code");
            if let Stood::Text(text) = stood
                && records.get(&code) == Some(text)
            {
                records.remove(&code);
            }
        }
        Ok((before - records.len()) as u64)
    }

    async fn count(&self) -> Result<u64, PublishError> {
        self.check("count its keys")?;
        Ok(self.records.lock().expect("no holder panics").len() as u64)
    }

    async fn incarnation(&self) -> Result<String, PublishError> {
        self.check("report its identity")?;
        Ok(self.incarnation.load(Ordering::SeqCst).to_string())
    }
}

/// Waits for something to come true.
pub async fn eventually<F: Future<Output = bool>>(what: &str, condition: impl Fn() -> F) {
    let poll = async {
        while !condition().await {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let limit = Duration::from_secs(20);
    let came_true = tokio::time::timeout(limit, poll).await;
    assert!(came_true.is_ok(), "{what}: not within {limit:?}");
}

/// A change of a link with the key of an id.
pub fn changed_by(key_id: &str) -> ChangedBy {
    ChangedBy {
        key_id: Some(key_id.to_owned()),
        action: Action::LinkChange,
    }
}

/// Knows no place.
struct Nowhere;

impl Places for Nowhere {
    fn place(&self, _address: std::net::IpAddr) -> Place {
        Place::default()
    }
}

/// Knows of a user agent what it says of its class.
pub struct Nothing;

impl Agents for Nothing {
    fn agent(&self, user_agent: &str) -> Arc<Agent> {
        Arc::new(Agent {
            words: Words::of(user_agent),
            ..Agent::default()
        })
    }
}

/// Makes visits of which nothing is known but what the events say.
pub fn enrichment() -> Enrichment {
    let (places, agents) = (Arc::new(Nowhere), Arc::new(Nothing));
    Enrichment::new(places, agents, AddressPolicy::Truncated)
}
