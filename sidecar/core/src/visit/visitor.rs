//! Visitors: distinguishable within a day, and anonymous afterwards.
//!
//! A visitor's id is a keyed hash of the client's address and user agent. The key is created for
//! one day (UTC) and destroyed [`GRACE`] after it has passed. From then on an id cannot be traced
//! to an address, not even by brute force, nor can visitors of two days be matched.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use async_trait::async_trait;
use hmac::{Hmac, KeyInit, Mac};
use jiff::civil::Date;
use jiff::tz::Offset;
use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;
use rand::CryptoRng;
use secrecy::zeroize::Zeroizing;
use sha2::Sha256;

use crate::store_error::StoreError;

/// Time after a day's end until its key is destroyed. It serves late events: the sidecar may have
/// been down while Redis held the edge's events. Later visits have no visitor.
pub const GRACE: SignedDuration = SignedDuration::from_hours(6);

/// The most that the edge's clock may be ahead of ours for its visits to have visitors.
const AHEAD: SignedDuration = SignedDuration::from_mins(5);

/// The day that a moment is in.
pub fn day_of(moment: Timestamp) -> Date {
    Offset::UTC.to_datetime(moment).date()
}

/// The first day with a live key. Keys of earlier days are to be destroyed.
pub fn first_live_day(now: Timestamp) -> Date {
    day_of(now.checked_sub(GRACE).unwrap_or(now))
}

/// The last day whose key is there already.
fn last_live_day(now: Timestamp) -> Date {
    day_of(now.checked_add(AHEAD).unwrap_or(now))
}

/// The key of a day. Its bytes are overwritten when it is dropped, and never shown.
#[derive(Clone, PartialEq, Eq)]
pub struct DayKey(Zeroizing<[u8; 32]>);

impl DayKey {
    /// A key with these bytes.
    pub fn new(bytes: [u8; 32]) -> Self {
        Self(Zeroizing::new(bytes))
    }

    /// Draws a key.
    pub fn random(rng: &mut (impl CryptoRng + ?Sized)) -> Self {
        let mut bytes = Zeroizing::new([0; 32]);
        rng.fill_bytes(&mut *bytes);
        Self(bytes)
    }

    /// The key's bytes, only to be stored.
    pub fn expose(&self) -> &[u8; 32] {
        &self.0
    }
}

impl fmt::Debug for DayKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DayKey")
    }
}

/// Stores the day keys, which all sidecars share.
#[async_trait]
pub trait DayKeys: Send + Sync {
    /// Returns the key of a day. If there is none yet, `fresh` becomes it; concurrent calls return
    /// the same key. It is durable when this returns.
    async fn day_key(&self, day: Date, fresh: DayKey) -> Result<DayKey, StoreError>;

    /// Returns the key of a day, if it exists; for readers, which must not create one.
    async fn known_day_key(&self, day: Date) -> Result<Option<DayKey>, StoreError>;

    /// Destroys the keys of all days before this one, in the database's files as well as far as the
    /// database allows, and returns their number.
    async fn destroy_day_keys(&self, before: Date) -> Result<u64, StoreError>;
}

/// Names a visitor within a day.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct VisitorId(pub [u8; 16]);

impl fmt::Display for VisitorId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", u128::from_be_bytes(self.0))
    }
}

impl fmt::Debug for VisitorId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "VisitorId({self})")
    }
}

/// The keys of the days that are live: today's, yesterday's for a while, and tomorrow's shortly
/// before midnight.
#[derive(Clone, Debug, Default)]
pub struct LiveKeys(BTreeMap<Date, Arc<DayKey>>);

impl LiveKeys {
    /// Returns the id of the visitor at this moment, or `None` without the day's key.
    pub fn visitor(&self, at: Timestamp, client: IpAddr, user_agent: &[u8]) -> Option<VisitorId> {
        let day = day_of(at);
        let key = self.0.get(&day)?;
        let mut mac = Hmac::<Sha256>::new_from_slice(key.expose()).ok()?;
        // Each part has one length only, or is the last: no two visitors have the same bytes.
        mac.update(&day.year().to_be_bytes());
        mac.update(&[day.month().unsigned_abs(), day.day().unsigned_abs()]);
        match client {
            IpAddr::V4(client) => mac.update(&client.to_ipv6_mapped().octets()),
            IpAddr::V6(client) => mac.update(&client.octets()),
        }
        mac.update(user_agent);
        let digest = mac.finalize().into_bytes();
        let mut id = [0; 16];
        id.copy_from_slice(&digest[..16]);
        Some(VisitorId(id))
    }

    /// Reports whether the key of a day is present.
    pub fn has(&self, day: Date) -> bool {
        self.0.contains_key(&day)
    }
}

impl FromIterator<(Date, DayKey)> for LiveKeys {
    fn from_iter<I: IntoIterator<Item = (Date, DayKey)>>(keys: I) -> Self {
        let keys = keys.into_iter().map(|(day, key)| (day, Arc::new(key)));
        Self(keys.collect())
    }
}

/// Caches the live keys, so that the store is read once a day and not for every batch.
pub struct KeyRing {
    store: Arc<dyn DayKeys>,
    kept: Mutex<LiveKeys>,
}

impl KeyRing {
    /// A ring that holds nothing yet.
    pub fn new(store: Arc<dyn DayKeys>) -> Self {
        Self {
            store,
            kept: Mutex::default(),
        }
    }

    /// Returns the keys that are live now, creating missing ones; to be called for every batch.
    /// Drops expired keys from memory.
    ///
    /// # Errors
    /// Fails if the store can't provide a missing key.
    pub async fn live(
        &self,
        now: Timestamp,
        rng: &mut (impl CryptoRng + Send + ?Sized),
    ) -> Result<LiveKeys, StoreError> {
        self.fetch(now, || Some(DayKey::random(rng))).await
    }

    /// Returns those live keys that already exist, and creates none. Drops expired keys from
    /// memory, even if it fails.
    pub async fn known(&self, now: Timestamp) -> Result<LiveKeys, StoreError> {
        self.fetch(now, || None).await
    }

    /// Fetches missing keys. Each becomes the one that `fresh` returns, if any, unless it exists.
    async fn fetch(
        &self,
        now: Timestamp,
        mut fresh: impl FnMut() -> Option<DayKey> + Send,
    ) -> Result<LiveKeys, StoreError> {
        let mut keys = self.held(now);
        let mut day = Some(first_live_day(now));
        while let Some(this) = day.filter(|day| *day <= last_live_day(now)) {
            if let Entry::Vacant(place) = keys.0.entry(this) {
                let key = match fresh() {
                    Some(fresh) => Some(self.store.day_key(this, fresh).await?),
                    None => self.store.known_day_key(this).await?,
                };
                if let Some(key) = key {
                    place.insert(Arc::new(key));
                }
            }
            day = this.tomorrow().ok();
        }
        self.kept.lock().clone_from(&keys);
        Ok(keys)
    }

    /// The cached live keys. Removes those that are not live any more.
    pub fn held(&self, now: Timestamp) -> LiveKeys {
        let live = first_live_day(now)..=last_live_day(now);
        let mut kept = self.kept.lock();
        kept.0.retain(|day, _| live.contains(day));
        kept.clone()
    }

    /// Destroys expired keys in memory and in the store. Returns their number in the store. To be
    /// called every few minutes.
    pub async fn destroy_old(&self, now: Timestamp) -> Result<u64, StoreError> {
        self.held(now);
        self.store.destroy_day_keys(first_live_day(now)).await
    }
}

#[cfg(test)]
mod tests;
