//! Authentication of callers, and their rate limits.
//!
//! A database look-up per request would cost more than most requests do, so API keys are cached for
//! a second. Changes to a key by this process take effect at once; changes by another process (the
//! command line, a second sidecar) within that second. Expiry needs no invalidation: every request
//! compares the key's expiry with the clock.
//!
//! Rate limits are counted per process: two sidecars allow a key twice as much, and a restart
//! resets the counts.

mod attempts;
mod limiter;

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

pub use attempts::Attempts;
use jiff::Timestamp;
pub use limiter::{ChargeError, RateState};
use lru::LruCache;
use parking_lot::Mutex;
use shortlink_core::api_key::{ApiKey, Person, PresentedKey};
use shortlink_core::boxed;
use shortlink_core::clock::Clock;
use shortlink_core::ports::StoreError;
use shortlink_core::sign_in::RoleRules;
use shortlink_store::Store;

use limiter::Limiter;

/// Time that a cached API key stays fresh.
const LIFE: Duration = Duration::from_secs(1);

/// The most API keys in the cache. An evicted key, the one that was not used for the longest time,
/// is looked up again at its next use, with a new rate limit.
const MOST_KEYS: NonZeroUsize = NonZeroUsize::new(10_000).unwrap();

/// Recognises API keys.
pub struct Access {
    store: Arc<Store>,
    clock: Arc<dyn Clock>,
    people: Option<PeopleRules>,
    cache: Mutex<Cache>,
}

/// The people whose sessions are valid: those whom the provider of now has signed in, with a role that it can give now.
#[derive(Clone, Debug)]
pub struct PeopleRules {
    /// The provider.
    pub issuer: String,
    /// The roles that it gives.
    pub roles: RoleRules,
}

impl PeopleRules {
    fn admit(&self, person: &Person) -> bool {
        // Providers and operators write the address of a host with and without its path.
        let issuer = |text: &str| text.trim_end_matches('/').to_owned();
        let has_role = person.role.is_some_and(|role| self.roles.give(role));
        has_role && issuer(&person.issuer) == issuer(&self.issuer)
    }
}

/// The proof of a caller.
#[derive(Debug)]
pub enum Credentials {
    /// The text of an API key.
    Key(PresentedKey),
    /// A session of the person with this id.
    Person(String),
}

impl Credentials {
    /// The id of the API key or person.
    pub fn id(&self) -> &str {
        match self {
            Self::Key(presented) => &presented.id,
            Self::Person(id) => id,
        }
    }

    /// Reports whether they are those of this key or person, and it is live.
    pub fn are_of(&self, key: &ApiKey, now: Timestamp) -> bool {
        match self {
            Self::Key(presented) => key.admits(presented, now),
            Self::Person(id) => key.id == *id && key.admits_sessions(now),
        }
    }
}

/// A recognised API key, for the duration of a request or of a task that the request started.
#[derive(Clone)]
pub struct Caller(Arc<Recognised>);

struct Recognised {
    key: ApiKey,
    limiter: Option<Arc<Limiter>>,
}

impl Caller {
    /// The key.
    pub fn key(&self) -> &ApiKey {
        &self.0.key
    }

    /// Takes the unit of a request from the rate limit of the API key; also returns the state of the limit then, if the
    /// key has one.
    pub fn charge_request(&self) -> (Option<RateState>, Result<(), ChargeError>) {
        match &self.0.limiter {
            Some(limiter) => {
                let (state, taken) = limiter.take_one();
                (Some(state), taken)
            }
            None => (None, Ok(())),
        }
    }

    /// Takes units from the rate limit of the API key: all or none. Authorisation takes one unit
    /// per request ([`Self::charge_request`]); the handler of a batch takes one for every row after the first.
    ///
    /// # Errors
    /// Fails if too few units are left, or the limit never allows as many.
    pub fn charge(&self, units: u32) -> Result<(), ChargeError> {
        match &self.0.limiter {
            Some(limiter) => limiter.take(units),
            None => Ok(()),
        }
    }
}

impl Access {
    /// Recognises the API keys of a store.
    pub fn new(store: Arc<Store>, clock: Arc<dyn Clock>) -> Self {
        Self {
            store,
            clock,
            people: None,
            cache: Mutex::new(Cache::new()),
        }
    }

    /// Recognises people as well.
    pub fn with_people(self, people: Option<PeopleRules>) -> Self {
        Self { people, ..self }
    }

    /// Recognises an API key or a person; `None` when it is unknown, revoked, blocked or expired, or its secret is
    /// wrong.
    ///
    /// # Errors
    /// Fails if the key is not cached and the store fails.
    #[boxed]
    pub async fn recognise(&self, credentials: &Credentials) -> Result<Option<Caller>, StoreError> {
        let caller = self.find(credentials.id()).await?;
        let now = self.clock.now();
        let admits = |person: &Person| self.people.as_ref().is_some_and(|it| it.admit(person));
        Ok(caller.filter(|caller| {
            let person = caller.key().person.as_deref();
            credentials.are_of(caller.key(), now) && person.is_none_or(admits)
        }))
    }

    /// Invalidates the cache entry of a key that has changed.
    pub fn forget(&self, id: &str) {
        let mut cache = self.cache.lock();
        // A look-up in progress may have read the key before the change.
        cache.generation += 1;
        if let Some(entry) = cache.entries.get_mut(id) {
            entry.found_at = None;
        }
    }

    async fn find(&self, id: &str) -> Result<Option<Caller>, StoreError> {
        let question = match self.known(id) {
            Ok(caller) => return Ok(Some(caller)),
            Err(question) => question,
        };
        let found = self.store.find_key(id).await?;
        Ok(self.answered(id, &question, found))
    }

    /// Returns the caller from the cache, unless a look-up is due.
    fn known(&self, id: &str) -> Result<Caller, Question> {
        let asked_at = self.clock.elapsed();
        let mut cache = self.cache.lock();
        match cache.entries.get(id) {
            Some(entry) if entry.is_fresh(asked_at) => Ok(entry.caller.clone()),
            _ => Err(Question {
                asked_at,
                generation: cache.generation,
            }),
        }
    }

    /// Caches the result of a look-up.
    fn answered(&self, id: &str, question: &Question, found: Option<ApiKey>) -> Option<Caller> {
        let mut cache = self.cache.lock();
        let Some(key) = found else {
            // Not cached: unknown texts in the shape of a key would fill the cache.
            cache.entries.pop(id);
            return None;
        };
        // As old as the start of the look-up: the result may be of any moment since.
        let is_current = question.generation == cache.generation;
        let found_at = is_current.then_some(question.asked_at);
        Some(cache.keep(key, found_at, &self.clock))
    }
}

/// A database look-up in progress.
struct Question {
    asked_at: Duration,
    /// Generation of the cache at the start; if it has grown meanwhile, the result may be stale.
    generation: u64,
}

struct Cache {
    entries: LruCache<String, Entry>,
    /// Grows at each invalidation.
    generation: u64,
}

struct Entry {
    caller: Caller,
    /// Time of the look-up; `None` when a new one is due. A stale entry stays for its limiter.
    found_at: Option<Duration>,
}

impl Entry {
    fn is_fresh(&self, now: Duration) -> bool {
        self.found_at
            .is_some_and(|found_at| now.saturating_sub(found_at) < LIFE)
    }
}

impl Cache {
    fn new() -> Self {
        Self {
            entries: LruCache::new(MOST_KEYS),
            generation: 0,
        }
    }

    fn keep(&mut self, key: ApiKey, found_at: Option<Duration>, clock: &Arc<dyn Clock>) -> Caller {
        let known = self.entries.get(&key.id);
        let counted = known.and_then(|entry| entry.caller.0.limiter.clone());
        let limiter = key.rate_limit.map(|limit| match counted {
            Some(limiter) if limiter.limit() == limit => limiter,
            _ => Arc::new(Limiter::new(limit, Arc::clone(clock))),
        });
        let id = key.id.clone();
        let caller = Caller(Arc::new(Recognised { key, limiter }));
        let entry = Entry {
            caller: caller.clone(),
            found_at,
        };
        self.entries.put(id, entry);
        caller
    }
}

#[cfg(test)]
mod tests;
