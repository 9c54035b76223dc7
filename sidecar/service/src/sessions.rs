//! Sessions of users of the console, of two kinds.
//!
//! The session of an API key is a token that holds the text of the API key, encrypted and authenticated
//! (AES-256-GCM) under a key that all sidecars of a database derive from its code key. So nothing
//! is stored while it lasts, every sidecar accepts the session, and the API key itself authorises
//! requests: once it is revoked or expired, the session is invalid. When its user signs out before,
//! the database keeps its id, and every sidecar rejects it. Read access to the database does not allow
//! forging a session, since the database has no text of a key; a token does not reveal the text. Signing in with an API key
//! works while the database takes no changes, when the operator needs it.
//!
//! The session of a person has a random token, of which the database has the digest. It ends when its user signs out, the
//! operator ends it, the person loses their role, or nothing has used it for some time.

use std::collections::HashMap;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;
use rand::Rng;
use rand::rngs::StdRng;
use ring::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};
use shortlink_core::api_key::{ApiKey, PresentedKey};
use shortlink_core::audit::{Action, AuditEntry, Subject};
use shortlink_core::boxed;
use shortlink_core::clock::Clock;
use shortlink_core::codes::numbering::CodeKey;
use shortlink_core::codes::random::random_characters;
use shortlink_core::ports::{NewSession, StoreError, StoredSession};
use shortlink_store::Store;
use vocabulary::Alphabet;

use crate::access::Credentials;

/// Lifetime of a session of an API key.
pub const LIFE: SignedDuration = SignedDuration::from_hours(12);

/// The beginning of tokens of people. The other ones have no dot.
const OF_PERSON: &str = "person.";

/// The number of base62 characters of the secret of a person's token: 62^43 > 2^256.
const SECRET_LENGTH: usize = 43;

/// The time after which the use of a person's session is recorded again.
const USE_INTERVAL: SignedDuration = SignedDuration::from_mins(1);

/// The bounds of people's sessions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeopleLimits {
    /// Lifetime of a session.
    pub life: SignedDuration,
    /// Time without a request after which a session ends.
    pub idle: SignedDuration,
}

/// Associated data of each token: its kind, and the version of its format.
const KIND: &[u8] = b"console session 1";

/// Creates and verifies sessions.
pub struct Sessions {
    key: Option<LessSafeKey>,
    store: Arc<Store>,
    clock: Arc<dyn Clock>,
    rng: Mutex<StdRng>,
    limits: PeopleLimits,
}

/// A valid session.
#[derive(Debug)]
pub struct Session {
    /// The API key or person of the session, which may be revoked, blocked or expired.
    pub credentials: Credentials,
    /// Time of its expiry.
    pub until: Timestamp,
    /// Names it; the token does not follow from it.
    pub id: String,
}

impl Sessions {
    /// Returns the sessions of a database; `rng` generates nonces and secrets.
    pub fn new(
        store: Arc<Store>,
        code_key: &CodeKey,
        clock: Arc<dyn Clock>,
        rng: StdRng,
        limits: PeopleLimits,
    ) -> Self {
        let key = UnboundKey::new(&AES_256_GCM, &code_key.derive("console session"));
        Self {
            // A derived key has the right length.
            key: key.ok().map(LessSafeKey::new),
            store,
            clock,
            rng: Mutex::new(rng),
            limits,
        }
    }

    /// Creates a session for an API key, without verifying it; returns its token and expiry. `None`
    /// when no token can be created.
    pub fn begin(&self, text: &str) -> Option<(String, Timestamp)> {
        let until = self.clock.now().checked_add(LIFE).ok()?;
        let until = Timestamp::from_second(until.as_second()).ok()?;
        let text = [&until.as_second().to_be_bytes()[..], text.as_bytes()].concat();
        let token = self.sealed(KIND, &text)?;
        Some((token, until))
    }

    /// The bounds of people's sessions.
    pub fn limits(&self) -> PeopleLimits {
        self.limits
    }

    /// Draws the token of a new session of a person, which the caller stores.
    pub(crate) fn draw(&self) -> (String, NewSession) {
        let secret = random_characters(
            Alphabet::Base62.characters(),
            SECRET_LENGTH,
            &mut *self.rng.lock(),
        );
        let token = format!("{OF_PERSON}{}", String::from_utf8_lossy(&secret));
        let begun_at = self.clock.now();
        let session = NewSession {
            id: digest(&token),
            begun_at,
            until: begun_at.checked_add(self.limits.life).unwrap_or(begun_at),
        };
        (token, session)
    }

    /// Returns the session of a token; `None` when the token is invalid, or its session has expired or was ended.
    ///
    /// # Errors
    /// Fails if the store does.
    #[boxed]
    pub async fn find(&self, token: &str) -> Result<Option<Session>, StoreError> {
        if token.starts_with(OF_PERSON) {
            return self.find_of_person(digest(token)).await;
        }
        match self.read(token) {
            Some(session) if !self.is_over(&session).await? => Ok(Some(session)),
            _ => Ok(None),
        }
    }

    /// Reports whether a session has expired or was ended.
    ///
    /// # Errors
    /// Fails if the store does.
    #[boxed]
    pub async fn is_over(&self, session: &Session) -> Result<bool, StoreError> {
        if self.clock.now() >= session.until {
            return Ok(true);
        }
        match session.credentials {
            Credentials::Key(_) => self.store.is_session_ended(&session.id).await,
            Credentials::Person(_) => Ok(self.lasting(&session.id).await?.is_none()),
        }
    }

    /// Counts the present sessions of people.
    ///
    /// # Errors
    /// Fails if the store does.
    #[boxed]
    pub async fn count(&self, people: &[ApiKey]) -> Result<HashMap<String, u64>, StoreError> {
        let ids: Vec<&str> = people.iter().map(|it| &*it.id).collect();
        let now = self.clock.now();
        let used_since = now.checked_sub(self.limits.idle).unwrap_or(Timestamp::MIN);
        self.store
            .count_people_sessions(&ids, now, used_since)
            .await
    }

    /// Finds a session of a person that lasts.
    async fn lasting(&self, id: &str) -> Result<Option<StoredSession>, StoreError> {
        let now = self.clock.now();
        let found = self.store.find_people_session(id).await?;
        Ok(found.filter(|it| now < it.until && now.duration_since(it.used_at) < self.limits.idle))
    }

    async fn find_of_person(&self, id: String) -> Result<Option<Session>, StoreError> {
        let Some(found) = self.lasting(&id).await? else {
            return Ok(None);
        };
        let now = self.clock.now();
        if now.duration_since(found.used_at) >= USE_INTERVAL
            && let Err(error) = self.store.use_people_session(&id, now).await
        {
            // While the database takes no changes, sessions last until their last recorded use is too long ago.
            let error = &error as &dyn std::error::Error;
            tracing::debug!(error, "the use of a session was not recorded");
        }
        Ok(Some(Session {
            credentials: Credentials::Person(found.key_id),
            until: found.until,
            id,
        }))
    }

    /// Records in the audit log that a session of a key has begun.
    ///
    /// # Errors
    /// Fails if the store does.
    #[boxed]
    pub async fn record_begin(
        &self,
        key_id: String,
        detail: Map<String, Value>,
    ) -> Result<(), StoreError> {
        let subject = Subject::Key(key_id.clone());
        let entry = self.entry(Action::SessionBegin, key_id, subject, detail);
        self.store.record(entry).await
    }

    fn entry(
        &self,
        action: Action,
        key_id: String,
        subject: Subject,
        detail: Map<String, Value>,
    ) -> AuditEntry {
        AuditEntry {
            at: self.clock.now(),
            key_id: Some(key_id),
            action,
            subject,
            detail,
        }
    }

    /// Ends a session for every sidecar; `detail` is for the audit log.
    ///
    /// # Errors
    /// Fails if the store does.
    #[boxed]
    pub async fn end(
        &self,
        session: Session,
        detail: Map<String, Value>,
    ) -> Result<(), StoreError> {
        let entry = |id, subject| self.entry(Action::SessionEnd, id, subject, detail);
        match session.credentials {
            Credentials::Key(PresentedKey { id, .. }) => {
                let entry = entry(id.clone(), Subject::Key(id));
                self.store
                    .end_session(session.id, session.until, entry)
                    .await
            }
            Credentials::Person(id) => {
                let entry = entry(id.clone(), Subject::Person(id));
                self.store.end_people_session(&session.id, entry).await
            }
        }
    }

    /// Encrypts and authenticates a text for the browser, for every sidecar of the database. `purpose` separates it from
    /// other texts. `None` when no text can be sealed.
    pub fn seal(&self, purpose: &str, text: &str) -> Option<String> {
        self.sealed(purpose.as_bytes(), text.as_bytes())
    }

    /// Returns a sealed text; `None` when it is not one of this purpose and database.
    pub fn open(&self, purpose: &str, sealed: &str) -> Option<String> {
        let (_, text) = self.opened(purpose.as_bytes(), sealed)?;
        String::from_utf8(text).ok()
    }

    fn sealed(&self, purpose: &[u8], text: &[u8]) -> Option<String> {
        let mut nonce = [0; NONCE_LEN];
        self.rng.lock().fill_bytes(&mut nonce);
        let mut sealed = text.to_vec();
        self.key
            .as_ref()?
            .seal_in_place_append_tag(
                Nonce::assume_unique_for_key(nonce),
                Aad::from(purpose),
                &mut sealed,
            )
            .ok()?;
        Some(URL_SAFE_NO_PAD.encode([&nonce[..], &sealed].concat()))
    }

    /// Returns the text of the nonce and the sealed text.
    fn opened(&self, purpose: &[u8], sealed: &str) -> Option<(String, Vec<u8>)> {
        let mut bytes = URL_SAFE_NO_PAD.decode(sealed).ok()?;
        let (nonce, sealed) = bytes.split_at_mut_checked(NONCE_LEN)?;
        let id = URL_SAFE_NO_PAD.encode(&nonce);
        let nonce = Nonce::try_assume_unique_for_key(nonce).ok()?;
        let key = self.key.as_ref()?;
        let opened = key.open_in_place(nonce, Aad::from(purpose), sealed).ok()?;
        Some((id, opened.to_vec()))
    }

    /// Reads a token; `None` when it is invalid or its session has expired.
    fn read(&self, token: &str) -> Option<Session> {
        let (id, opened) = self.opened(KIND, token)?;
        let (until, text) = opened.split_first_chunk()?;
        let until = Timestamp::from_second(i64::from_be_bytes(*until)).ok()?;
        let presented = PresentedKey::parse(std::str::from_utf8(text).ok()?)?;
        (self.clock.now() < until).then_some(Session {
            credentials: Credentials::Key(presented),
            until,
            id,
        })
    }
}

/// The digest under which the database has the session of a token.
fn digest(token: &str) -> String {
    URL_SAFE_NO_PAD.encode(Sha256::digest(token))
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;
    use shortlink_core::ports::AuditListing;
    use shortlink_core::testing::ManualClock;

    use shortlink_store::testing::TemporaryStore;

    use super::*;

    fn sessions(kept: &TemporaryStore, key: u8, seed: u64) -> (Sessions, Arc<ManualClock>) {
        let clock = Arc::new(ManualClock::at("2026-06-01T00:00:00Z"));
        let rng = StdRng::seed_from_u64(seed);
        let (store, key) = (Arc::clone(&kept.store), CodeKey::new([key; 32]));
        let limits = PeopleLimits {
            life: LIFE,
            idle: LIFE,
        };
        let sessions = Sessions::new(store, &key, Arc::clone(&clock) as _, rng, limits);
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
            assert!(session.credentials.are_of(&key, clock.now()));
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
