//! Sessions of users of the console: an API key for half a day, stored only in the browser.
//!
//! A session is a token that holds the text of the API key, encrypted and authenticated
//! (AES-256-GCM) under a key that all sidecars of a database derive from its code key. So nothing
//! is stored, every sidecar accepts the session, and the API key itself authorises requests: once
//! it is revoked or expired, the session is invalid. Read access to the database does not allow
//! forging a session, since the database has no text of a key; a token does not reveal the text.

use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;
use rand::Rng;
use rand::rngs::StdRng;
use ring::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use shortlink_core::api_key::PresentedKey;
use shortlink_core::clock::Clock;
use shortlink_core::codes::numbering::CodeKey;

/// Lifetime of a session.
pub const LIFE: SignedDuration = SignedDuration::from_hours(12);

/// Associated data of each token: its kind, and the version of its format.
const KIND: &[u8] = b"console session 1";

/// Creates and verifies sessions.
pub struct Sessions {
    key: Option<LessSafeKey>,
    clock: Arc<dyn Clock>,
    rng: Mutex<StdRng>,
}

/// A valid session.
pub struct Session {
    /// The API key of the session, which may be revoked or expired.
    pub presented: PresentedKey,
    /// Time of its expiry.
    pub until: Timestamp,
}

impl Sessions {
    /// Returns the sessions of a database; `rng` generates nonces.
    pub fn new(code_key: &CodeKey, clock: Arc<dyn Clock>, rng: StdRng) -> Self {
        let key = UnboundKey::new(&AES_256_GCM, &code_key.derive("console session"));
        Self {
            // A derived key has the right length.
            key: key.ok().map(LessSafeKey::new),
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

    /// Reads a token; `None` when it is invalid or its session has expired.
    pub fn read(&self, token: &str) -> Option<Session> {
        let mut bytes = URL_SAFE_NO_PAD.decode(token).ok()?;
        let (nonce, sealed) = bytes.split_at_mut_checked(NONCE_LEN)?;
        let nonce = Nonce::try_assume_unique_for_key(nonce).ok()?;
        let opened = self
            .key
            .as_ref()?
            .open_in_place(nonce, Aad::from(KIND), sealed)
            .ok()?;
        let (until, text) = opened.split_first_chunk()?;
        let until = Timestamp::from_second(i64::from_be_bytes(*until)).ok()?;
        let presented = PresentedKey::parse(std::str::from_utf8(text).ok()?)?;
        (self.clock.now() < until).then_some(Session { presented, until })
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;
    use shortlink_core::api_key::ApiKey;
    use shortlink_core::testing::ManualClock;

    use super::*;

    fn sessions(key: u8, seed: u64) -> (Sessions, Arc<ManualClock>) {
        let clock = Arc::new(ManualClock::at("2026-06-01T00:00:00Z"));
        let rng = StdRng::seed_from_u64(seed);
        let sessions = Sessions::new(&CodeKey::new([key; 32]), Arc::clone(&clock) as _, rng);
        (sessions, clock)
    }

    fn key() -> (ApiKey, String) {
        let mut rng = StdRng::seed_from_u64(1);
        ApiKey::generate("test".to_owned(), vec![], Timestamp::UNIX_EPOCH, &mut rng)
    }

    #[test]
    fn a_session_stands_for_its_key_at_every_sidecar_of_the_database_until_it_ends() {
        let (sessions, clock) = sessions(1, 1);
        let (other, _) = self::sessions(1, 2);
        let (foreign, _) = self::sessions(2, 1);
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

    #[test]
    fn a_token_shows_nothing_of_the_key_and_none_is_like_another() {
        let (sessions, _) = sessions(1, 1);
        let (_, text) = key();
        let (first, _) = sessions.begin(&text).expect("a token");
        let (second, _) = sessions.begin(&text).expect("a token");
        assert_ne!(first, second);
        let bytes = URL_SAFE_NO_PAD.decode(&first).expect("base64");
        let secret = &text.as_bytes()[text.len() - 8..];
        assert!(!bytes.windows(secret.len()).any(|part| part == secret));
    }

    #[test]
    fn what_was_changed_or_cut_is_no_token() {
        let (sessions, _) = sessions(1, 1);
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
