//! Fixtures for the tests of several modules: a real store in a directory of its own, and a Redis in
//! memory that can become unavailable.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use rand::SeedableRng;
use rand::rngs::StdRng;
use tokio::sync::mpsc;
use vocabulary::{CampaignId, Code, CodeRules, Record};

use crate::clock::Clock;

use crate::core::api_key::{ApiKey, KeyPolicy, Scope};
use crate::core::audit::{Action, ChangedBy};
use crate::core::campaign::Campaign;
use crate::core::codes::numbering::CodeKey;
use crate::core::codes::reserved::ReservedWords;
use crate::core::codes::strategy::CodePolicy;
use crate::core::codes::strategy::StrategyName;
use crate::core::link::Link;
use crate::core::ports::{Delivery, Filled, PublishError, Publisher, RecordIndex, Stood};
use crate::core::records::{Drift, Records, Standing};
use crate::core::visit::Enrichment;
use crate::core::visit::address::AddressPolicy;
use crate::core::visit::agent::{Agent, Agents};
use crate::core::visit::place::{Place, Places};
use crate::jobs::Claims;
use crate::service::codes::hash::HashedCodes;
use crate::service::codes::lengths::Lengths;
use crate::service::codes::permuted::PermutedCodes;
use crate::service::codes::pool::{PooledCodes, Watermarks};
use crate::service::codes::sequence::SequenceCodes;
use crate::service::codes::strategy::Strategies;
use crate::service::issue::{Issuer, Parts};
use crate::service::keys::{Actor, Keys, NewKey};
use crate::store::Store;
use crate::store::sqlite::SqliteStore;

/// Generated files are written instead of compared when this variable of the environment is set.
const RENEW: &str = "SHORTLINK_RENEW";

/// Holds a file of the repository, named by its path from the root, to the text that is generated for it.
pub(crate) fn assert_generated(path: &str, text: &str) {
    let file = std::path::Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("..")
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

/// A migrated store; its files go with the value.
pub(crate) struct TemporaryStore {
    pub(crate) store: Arc<Store>,
    pub(crate) url: String,
    _directory: tempfile::TempDir,
}

impl TemporaryStore {
    pub(crate) async fn new() -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let url = format!("sqlite:{}/links.db", directory.path().display());
        let key = CodeKey::new([9; 32]);
        SqliteStore::migrate(&url, &key)
            .await
            .expect("an empty place");
        let store = SqliteStore::open(&url, 2).await.expect("a good database");
        Self {
            store: Arc::new(store.into()),
            url,
            _directory: directory,
        }
    }
}

/// Keeps a key with these scopes, and returns it with the text that it is presented with.
pub(crate) async fn keep_key(
    store: &Arc<Store>,
    clock: &Arc<dyn Clock>,
    seed: u64,
    key: NewKey,
) -> (ApiKey, String) {
    let rng = StdRng::seed_from_u64(seed);
    let keys = Keys::new(Arc::clone(store), Arc::clone(clock), rng, None);
    let made = keys.create(&Actor::Operator, key).await;
    made.expect("a working store")
}

/// A new key with these scopes and nothing else.
pub(crate) fn new_key(scopes: &[Scope]) -> NewKey {
    NewKey {
        name: "test".to_owned(),
        scopes: scopes.to_vec(),
        expires_at: None,
        rate_limit: None,
        policy: KeyPolicy::default(),
    }
}

/// A Redis in memory.
#[derive(Default)]
pub(crate) struct MemoryPublisher {
    records: Mutex<HashMap<Code, Vec<u8>>>,
    counters: Mutex<HashMap<String, u64>>,
    /// Revisions and records.
    campaigns: Mutex<HashMap<CampaignId, (u64, Vec<u8>)>>,
    is_away: AtomicBool,
    incarnation: AtomicU32,
}

impl MemoryPublisher {
    /// Takes it away or brings it back.
    pub(crate) fn set_away(&self, is_away: bool) {
        self.is_away.store(is_away, Ordering::SeqCst);
    }

    /// Starts it again with nothing in it.
    pub(crate) fn restart(&self) {
        self.incarnation.fetch_add(1, Ordering::SeqCst);
        self.records.lock().expect("no holder panics").clear();
        self.counters.lock().expect("no holder panics").clear();
        self.campaigns.lock().expect("no holder panics").clear();
    }

    /// The record of a code.
    pub(crate) fn record(&self, code: &str) -> Option<String> {
        let records = self.records.lock().expect("no holder panics");
        let record = records.get(&code.parse().expect("a code"))?;
        Some(String::from_utf8(record.clone()).expect("a readable record"))
    }

    /// Writes a text under a code, whatever stands there.
    pub(crate) fn set_record(&self, code: &str, text: impl Into<Vec<u8>>) {
        let mut records = self.records.lock().expect("no holder panics");
        records.insert(code.parse().expect("a code"), text.into());
    }

    /// Loses the record of a code.
    pub(crate) fn lose(&self, code: &str) {
        let mut records = self.records.lock().expect("no holder panics");
        records.remove(&code.parse().expect("a code"));
    }

    /// Writes a text under the key of a campaign, or loses the one that stands there.
    pub(crate) fn set_campaign_record(&self, id: CampaignId, text: Option<&[u8]>) {
        let mut campaigns = self.campaigns.lock().expect("no holder panics");
        match text {
            Some(text) => campaigns.insert(id, (0, text.to_vec())),
            None => campaigns.remove(&id),
        };
    }

    /// The record of a campaign.
    pub(crate) fn campaign_record(&self, id: &str) -> Option<String> {
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
    async fn publish(&self, links: &[Link]) -> Result<(), PublishError> {
        self.check("store link records")?;
        let mut records = self.records.lock().expect("no holder panics");
        for link in links {
            let standing = match records.get(&link.code).map(|record| Record::parse(record)) {
                Some(Ok(Record::Link(standing))) => standing.revision,
                Some(Ok(Record::CampaignLink(standing))) => standing.revision,
                Some(Ok(Record::Revoked { revision })) => revision,
                _ => 0,
            };
            if standing <= link.revision {
                records.insert(link.code, link.record().to_vec());
            }
        }
        Ok(())
    }

    async fn publish_new(&self, links: &[Link]) -> Result<(), PublishError> {
        self.publish(links).await
    }

    async fn publish_campaigns(&self, campaigns: &[Campaign]) -> Result<(), PublishError> {
        self.check("store campaigns' records")?;
        let mut kept = self.campaigns.lock().expect("no holder panics");
        for campaign in campaigns {
            let standing = kept.get(&campaign.id).map_or(0, |(revision, _)| *revision);
            if standing <= campaign.revision {
                kept.insert(campaign.id, (campaign.revision, campaign.record().to_vec()));
            }
        }
        Ok(())
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
            .or_insert_with(|| Record::Unknown.to_vec());
        Ok(())
    }

    async fn incarnation(&self) -> Result<String, PublishError> {
        self.check("report its identity")?;
        Ok(self.incarnation.load(Ordering::SeqCst).to_string())
    }
}

#[async_trait]
impl RecordIndex for MemoryPublisher {
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
            standing.insert(wanted.code, wanted.text.to_vec());
        }
        Ok(filled)
    }

    async fn compare(&self, records: &Records) -> Result<Vec<(usize, Drift)>, PublishError> {
        self.check("read link records")?;
        let standing = self.records.lock().expect("no holder panics");
        let drifts = (0..records.len()).filter_map(|place| {
            let text = standing.get(&records.get(place).code);
            let standing = text.map_or(Standing::Nothing, |text| Standing::Text(text));
            Some((place, records.drift(place, standing)?))
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
        Publisher::incarnation(self).await
    }
}

/// Eight characters, counted up and permuted.
pub(crate) const POLICY: CodePolicy = CodePolicy {
    strategy: StrategyName::Permuted,
    lengths: (7, 7),
};

/// Everything that issuing needs, with small numbers.
pub(crate) fn parts(
    store: &Arc<Store>,
    publisher: &Arc<dyn Publisher>,
    delivery: &Arc<dyn Delivery>,
    clock: &Arc<dyn Clock>,
    rules: &CodeRules,
) -> Parts {
    let rng = || StdRng::seed_from_u64(7);
    let watermarks = Watermarks { low: 10, high: 50 };
    let strategies = Strategies {
        permuted: Arc::new(PermutedCodes::new(Arc::clone(store), rules.clone())),
        pool: Arc::new(PooledCodes::new(
            Arc::clone(store),
            rules.clone(),
            watermarks,
            rng(),
        )),
        sequence: Arc::new(SequenceCodes::new(
            Arc::clone(store),
            Arc::clone(publisher),
            rules.clone(),
            rng(),
        )),
        hash: Arc::new(HashedCodes::new(&store.code_key(), rules.clone())),
    };
    Parts {
        store: Arc::clone(store),
        delivery: Arc::clone(delivery),
        strategies,
        lengths: Lengths::new(Arc::clone(store), rules.clone(), 2),
        reserved: ReservedWords::new(["api".to_owned()]),
        clock: Arc::clone(clock),
    }
}

/// An issuer of all of these.
pub(crate) fn issuer(
    store: &Arc<Store>,
    publisher: &Arc<dyn Publisher>,
    delivery: &Arc<dyn Delivery>,
    clock: &Arc<dyn Clock>,
    rules: &CodeRules,
) -> Issuer {
    Issuer::start(parts(store, publisher, delivery, clock, rules))
}

/// Has a holder claim jobs in a store.
pub(crate) fn claims<C: Clock + 'static>(
    store: &Arc<Store>,
    clock: &Arc<C>,
    holder: &str,
) -> Claims {
    Claims {
        store: Arc::clone(store),
        clock: Arc::clone(clock) as _,
        holder: holder.to_owned(),
    }
}

/// Waits for something to come true.
pub(crate) async fn eventually<F: Future<Output = bool>>(what: &str, condition: impl Fn() -> F) {
    let poll = async {
        while !condition().await {
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
    };
    let limit = std::time::Duration::from_secs(20);
    let came_true = tokio::time::timeout(limit, poll).await;
    assert!(came_true.is_ok(), "{what}: not within {limit:?}");
}

/// A change of a link with the key of an id.
pub(crate) fn changed_by(key_id: &str) -> ChangedBy {
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

/// Knows no user agent.
pub(crate) struct Nothing;

impl Agents for Nothing {
    fn agent(&self, _user_agent: &str) -> Arc<Agent> {
        Arc::default()
    }
}

/// Makes visits of which nothing is known but what the events say.
pub(crate) fn enrichment() -> Enrichment {
    let (places, agents) = (Arc::new(Nowhere), Arc::new(Nothing));
    Enrichment::new(places, agents, AddressPolicy::Truncated)
}
