//! What the tests of several modules need: a real store in a directory of its own, and a Redis in
//! memory that can be taken away.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use rand::SeedableRng;
use rand::rngs::StdRng;
use vocabulary::{Code, Record};

use crate::clock::Clock;
use crate::domain::api_key::{ApiKey, KeyPolicy, Scope};
use crate::domain::link::Link;
use crate::domain::ports::{PublishError, Publisher, Store};
use crate::domain::service::keys::{Actor, Keys, NewKey};
use crate::store::sqlite::SqliteStore;

/// A migrated store; its files go with the value.
pub(crate) struct TemporaryStore {
    pub(crate) store: Arc<dyn Store>,
    _directory: tempfile::TempDir,
}

impl TemporaryStore {
    pub(crate) async fn new() -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let url = format!("sqlite:{}/links.db", directory.path().display());
        SqliteStore::migrate(&url).await.expect("an empty place");
        let store = SqliteStore::open(&url, 2).await.expect("a good database");
        Self {
            store: Arc::new(store),
            _directory: directory,
        }
    }
}

/// Keeps a key with these scopes, and returns it with the text that it is presented with.
pub(crate) async fn keep_key(
    store: &Arc<dyn Store>,
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
    }

    /// The record of a code.
    pub(crate) fn record(&self, code: &str) -> Option<String> {
        let records = self.records.lock().expect("no holder panics");
        let record = records.get(&code.parse().expect("a code"))?;
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
                Some(Ok(Record::Revoked { revision })) => revision,
                _ => 0,
            };
            if standing <= link.revision {
                records.insert(link.code, link.record().to_vec());
            }
        }
        Ok(())
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
        self.check("say which server it is")?;
        Ok(self.incarnation.load(Ordering::SeqCst).to_string())
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
