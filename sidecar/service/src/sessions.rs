//! Sessions of users of the console: an API key for half a day, stored in the browser.
//!
//! A session is a token that holds the text of the API key, encrypted and authenticated
//! (AES-256-GCM) under a key that all sidecars of a database derive from its code key. So nothing
//! is stored while it lasts, every sidecar accepts the session, and the API key itself authorises
//! requests: once it is revoked or expired, the session is invalid. When its user signs out before,
//! the database keeps its id, and every sidecar rejects it. Read access to the database does not allow
//! forging a session, since the database has no text of a key; a token does not reveal the text.

use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;
use rand::Rng;
use rand::rngs::StdRng;
use ring::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use serde_json::{Map, Value};
use shortlink_core::api_key::PresentedKey;
use shortlink_core::audit::{Action, AuditEntry, Subject};
use shortlink_core::clock::Clock;
use shortlink_core::codes::numbering::CodeKey;
use shortlink_core::ports::StoreError;
use shortlink_store::Store;

/// Lifetime of a session.
pub const LIFE: SignedDuration = SignedDuration::from_hours(12);

/// Associated data of each token: its kind, and the version of its format.
const KIND: &[u8] = b"console session 1";

/// Creates and verifies sessions.
pub struct Sessions {
    key: Option<LessSafeKey>,
    store: Arc<Store>,
    clock: Arc<dyn Clock>,
    rng: Mutex<StdRng>,
}

/// A valid session.
pub struct Session {
    /// The API key of the session, which may be revoked or expired.
    pub presented: PresentedKey,
    /// Time of its expiry.
    pub until: Timestamp,
    /// Names it; the token does not follow from it.
    pub id: String,
}

impl Sessions {
    /// Returns the sessions of a database; `rng` generates nonces.
    pub fn new(store: Arc<Store>, code_key: &CodeKey, clock: Arc<dyn Clock>, rng: StdRng) -> Self {
        let key = UnboundKey::new(&AES_256_GCM, &code_key.derive("console session"));
        Self {
            // A derived key has the right length.
            key: key.ok().map(LessSafeKey::new),
            store,
            clock,
            rng: Mutex::new(rng),
        }
    }

    /// Creates a session for an API key, without verifying it; returns its token and expiry. `None`
    /// when no token can be created.
    pub fn begin(&self, text: &str) -> Option<(String, Timestamp)> {
        let until = self.clock.now().checked_add(LIFE).ok()?;
        let until = Timestamp::from_second(until.as_second()).ok()?;
        let mut nonce = [0; NONCE_LEN];
        let mut rng = self.rng.lock();
        rng.fill_bytes(&mut nonce);
        drop(rng);
        let mut sealed = [&until.as_second().to_be_bytes()[..], text.as_bytes()].concat();
        self.key
            .as_ref()?
            .seal_in_place_append_tag(
                Nonce::assume_unique_for_key(nonce),
                Aad::from(KIND),
                &mut sealed,
            )
            .ok()?;
        let token = URL_SAFE_NO_PAD.encode([&nonce[..], &sealed].concat());
        Some((token, until))
    }

    /// Returns the session of a token; `None` when the token is invalid, or its session has expired or was ended.
    ///
    /// # Errors
    /// Fails if the store does.
    pub async fn find(&self, token: &str) -> Result<Option<Session>, StoreError> {
        match self.read(token) {
            Some(session) if !self.is_over(&session.id).await? => Ok(Some(session)),
            _ => Ok(None),
        }
    }

    /// Reports whether a session was ended.
    ///
    /// # Errors
    /// Fails if the store does.
    pub async fn is_over(&self, id: &str) -> Result<bool, StoreError> {
        self.store.is_session_ended(id).await
    }

    /// Records in the audit log that a session of a key has begun.
    ///
    /// # Errors
    /// Fails if the store does.
    pub async fn record_begin(
        &self,
        key_id: String,
        detail: Map<String, Value>,
    ) -> Result<(), StoreError> {
        let entry = self.entry(Action::SessionBegin, key_id, detail);
        self.store.record(entry).await
    }

    fn entry(&self, action: Action, key_id: String, detail: Map<String, Value>) -> AuditEntry {
        AuditEntry {
            at: self.clock.now(),
            key_id: Some(key_id.clone()),
            action,
            subject: Subject::Key(key_id),
            detail,
        }
    }

    /// Ends a session for every sidecar; `detail` is for the audit log.
    ///
    /// # Errors
    /// Fails if the store does.
    pub async fn end(
        &self,
        session: Session,
        detail: Map<String, Value>,
    ) -> Result<(), StoreError> {
        let entry = self.entry(Action::SessionEnd, session.presented.id, detail);
        self.store
            .end_session(session.id, session.until, entry)
            .await
    }

    /// Reads a token; `None` when it is invalid or its session has expired.
    fn read(&self, token: &str) -> Option<Session> {
        let mut bytes = URL_SAFE_NO_PAD.decode(token).ok()?;
        let (nonce, sealed) = bytes.split_at_mut_checked(NONCE_LEN)?;
        let id = URL_SAFE_NO_PAD.encode(&nonce);
        let nonce = Nonce::try_assume_unique_for_key(nonce).ok()?;
        let opened = self
            .key
            .as_ref()?
            .open_in_place(nonce, Aad::from(KIND), sealed)
            .ok()?;
        let (until, text) = opened.split_first_chunk()?;
        let until = Timestamp::from_second(i64::from_be_bytes(*until)).ok()?;
        let presented = PresentedKey::parse(std::str::from_utf8(text).ok()?)?;
        (self.clock.now() < until).then_some(Session {
            presented,
            until,
            id,
        })
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;
    use shortlink_core::api_key::ApiKey;
    use shortlink_core::ports::AuditListing;
    use shortlink_core::testing::ManualClock;

    use shortlink_store::testing::TemporaryStore;

    use super::*;

    fn sessions(kept: &TemporaryStore, key: u8, seed: u64) -> (Sessions, Arc<ManualClock>) {
        let clock = Arc::new(ManualClock::at("2026-06-01T00:00:00Z"));
        let rng = StdRng::seed_from_u64(seed);
        let (store, key) = (Arc::clone(&kept.store), CodeKey::new([key; 32]));
        let sessions = Sessions::new(store, &key, Arc::clone(&clock) as _, rng);
        (sessions, clock)
    }

    fn key() -> (ApiKey, String) {
        let mut rng = StdRng::seed_from_u64(1);
        ApiKey::generate("test".to_owned(), vec![], Timestamp::UNIX_EPOCH, &mut rng)
    }

    #[tokio::test]
    async fn a_session_stands_for_its_key_at_every_sidecar_of_the_database_until_it_ends() {
        let kept = TemporaryStore::new().await;
        let (sessions, clock) = sessions(&kept, 1, 1);
        let (other, _) = self::sessions(&kept, 1, 2);
        let (foreign, _) = self::sessions(&kept, 2, 1);
        let (key, text) = key();
        let (token, until) = sessions.begin(&text).expect("a token");
        for sidecar in [&sessions, &other] {
            let session = sidecar.read(&token).expect("a session");
            assert!(key.admits(&session.presented, clock.now()));
            assert_eq!(session.until, until);
        }
        assert!(foreign.read(&token).is_none());
        clock.advance(LIFE - SignedDuration::from_millis(1));
        assert!(sessions.read(&token).is_some());
        clock.advance(SignedDuration::from_millis(1));
        assert!(sessions.read(&token).is_none());
    }

    #[tokio::test]
    async fn a_session_that_was_ended_is_over_at_every_sidecar() {
        let kept = TemporaryStore::new().await;
        let (sessions, _) = sessions(&kept, 1, 1);
        let (other, _) = self::sessions(&kept, 1, 2);
        let (_, text) = key();
        let [ended, open] = [(); 2].map(|()| sessions.begin(&text).expect("a token").0);
        for _ in 0..2 {
            let session = sessions.read(&ended).expect("a session");
            let end = sessions.end(session, Map::new()).await;
            end.expect("a working store");
        }
        for sidecar in [&sessions, &other] {
            for (token, is_open) in [(&ended, false), (&open, true)] {
                let found = sidecar.find(token).await.expect("a working store");
                assert_eq!(found.is_some(), is_open);
            }
        }
        let listing = AuditListing {
            limit: 10,
            ..AuditListing::default()
        };
        let log = kept.store.list_audit(&listing).await;
        let log = log.expect("a working store").items;
        assert_eq!((log.len(), &*log[0].action), (1, "session.end"));
    }

    #[tokio::test]
    async fn a_token_shows_nothing_of_the_key_and_none_is_like_another() {
        let kept = TemporaryStore::new().await;
        let (sessions, _) = sessions(&kept, 1, 1);
        let (_, text) = key();
        let (first, _) = sessions.begin(&text).expect("a token");
        let (second, _) = sessions.begin(&text).expect("a token");
        assert_ne!(first, second);
        let bytes = URL_SAFE_NO_PAD.decode(&first).expect("base64");
        let secret = &text.as_bytes()[text.len() - 8..];
        assert!(!bytes.windows(secret.len()).any(|part| part == secret));
    }

    #[tokio::test]
    async fn what_was_changed_or_cut_is_no_token() {
        let kept = TemporaryStore::new().await;
        let (sessions, _) = sessions(&kept, 1, 1);
        let (token, _) = sessions.begin(&key().1).expect("a token");
        let bytes = URL_SAFE_NO_PAD.decode(&token).expect("base64");
        for place in 0..bytes.len() {
            let mut changed = bytes.clone();
            changed[place] ^= 1;
            let changed = URL_SAFE_NO_PAD.encode(changed);
            assert!(sessions.read(&changed).is_none(), "byte {place}");
            let cut = URL_SAFE_NO_PAD.encode(&bytes[..place]);
            assert!(sessions.read(&cut).is_none(), "{place} bytes");
        }
        assert!(sessions.read("a token?").is_none());
    }
}
