//! API keys: authentication and authorisation of the service's callers.
//!
//! A key's text is `slk_<id>_<secret>`. The id finds the key and may be shown; the secret is a
//! random text of more than 256 bits, of which only the SHA-256 is stored. A slow hash, as for
//! passwords, would add nothing: such a secret cannot be guessed.
//!
//! A key is rotated to a successor of the same name and rights; both are valid while its user
//! changes over. A person ([`Person`]) is a key without a secret.

mod name;
mod person;
mod policy;
mod scope;

use std::fmt;

use jiff::{SignedDuration, Timestamp};
use rand::CryptoRng;
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;
use vocabulary::Alphabet;

use crate::codes::random::random_characters;
use crate::named;
pub use name::{MAX_NAME_LENGTH, NameError, parse_name};
pub use person::{Person, PersonState, Role};
pub use policy::{InvalidPolicy, KeyPolicy, PolicyError, RateLimit};
pub use scope::Scope;

/// Prefix of every key's text, so that secret scanners recognise a leaked one.
const PREFIX: &str = "slk";
/// The number of characters of an id.
const ID_LENGTH: usize = 10;
/// The number of base62 characters of a secret: 62^43 > 2^256.
const SECRET_LENGTH: usize = 43;

/// The longest time for which a key and its successor are both valid.
pub const MAX_OVERLAP: SignedDuration = SignedDuration::from_hours(24 * 90);

named! {
    /// The state of a key.
    pub enum KeyState: "state" {
        /// Valid: grants its scopes.
        Live = "live",
        /// Expired: grants nothing any more.
        Expired = "expired",
        /// Revoked: grants nothing any more, for good.
        Revoked = "revoked",
    }
}

/// A stored API key.
#[derive(Clone, PartialEq, Eq)]
pub struct ApiKey {
    /// Public part of the key, by which it is found.
    pub id: String,
    /// Name that its owner gave it.
    pub name: String,
    /// The SHA-256 of its secret.
    pub secret_sha256: [u8; 32],
    /// Scopes that it grants.
    pub scopes: Vec<Scope>,
    /// Rate limit of its requests; `None` for no limit.
    pub rate_limit: Option<RateLimit>,
    /// Restrictions on the links created with it.
    pub policy: KeyPolicy,
    /// Time of its creation.
    pub created_at: Timestamp,
    /// Time of its expiry.
    pub expires_at: Option<Timestamp>,
    /// Time of its revocation.
    pub revoked_at: Option<Timestamp>,
    /// The id of the key that it was rotated to.
    pub successor_id: Option<String>,
    /// The id of the first key of its sequence of rotations, its own for a key that replaces none. These keys share
    /// their links and their quota.
    pub first_id: String,
    /// The ids of all keys of this sequence, its own included; of a stored key that reaches only its own links. Other
    /// keys do not need them, and have none.
    pub sequence_ids: Vec<String>,
    /// The person whose sessions at the console this key stands for; `None` for a key with a secret.
    pub person: Option<Box<Person>>,
}

impl ApiKey {
    /// Generates a key; its text with the secret is available only now.
    pub fn generate(
        name: String,
        scopes: Vec<Scope>,
        now: Timestamp,
        rng: &mut (impl CryptoRng + ?Sized),
    ) -> (Self, String) {
        let id = random_text(ID_LENGTH, rng);
        let secret = random_text(SECRET_LENGTH, rng);
        let text = format!("{PREFIX}_{id}_{secret}");
        let key = Self {
            first_id: id.clone(),
            sequence_ids: Vec::new(),
            id,
            name,
            secret_sha256: Sha256::digest(&secret).into(),
            scopes,
            rate_limit: None,
            policy: KeyPolicy::default(),
            created_at: now,
            expires_at: None,
            revoked_at: None,
            successor_id: None,
            person: None,
        };
        (key, text)
    }

    /// Returns the key's state at a moment.
    pub fn state(&self, now: Timestamp) -> KeyState {
        if self.revoked_at.is_some() {
            KeyState::Revoked
        } else if self.expires_at.is_some_and(|expiry| now >= expiry) {
            KeyState::Expired
        } else {
            KeyState::Live
        }
    }

    /// Makes a person, whose id is drawn as that of a key.
    pub fn of_person(
        name: String,
        person: Person,
        now: Timestamp,
        rng: &mut (impl CryptoRng + ?Sized),
    ) -> Self {
        let scopes = person.role.map_or(&[][..], Role::scopes).to_vec();
        let (key, _) = Self::generate(name, scopes, now, rng);
        Self {
            person: Some(Box::new(person)),
            ..key
        }
    }

    /// Reports whether the presented secret is right and the key live. Takes the same time for
    /// every wrong secret. A person has no secret.
    pub fn admits(&self, presented: &PresentedKey, now: Timestamp) -> bool {
        let same: bool = self.secret_sha256.ct_eq(&presented.secret_sha256).into();
        same && self.person.is_none() && self.state(now) == KeyState::Live
    }

    /// The state of the person that this key is.
    pub fn person_state(&self) -> PersonState {
        match self.revoked_at {
            Some(_) => PersonState::Blocked,
            None => PersonState::Active,
        }
    }

    /// Reports whether this is a person who may have sessions.
    pub fn admits_sessions(&self, now: Timestamp) -> bool {
        self.person.is_some() && self.state(now) == KeyState::Live
    }

    /// Reports whether the key reaches the links and campaigns that another one has created.
    pub fn reaches(&self, created_by: &str) -> bool {
        match self.own_ids() {
            Some(mut own) => own.any(|id| id == created_by),
            None => true,
        }
    }

    /// The ids of the keys whose links and campaigns the key reaches; `None` if it reaches all.
    pub fn own_ids(&self) -> Option<impl Iterator<Item = &str>> {
        let others = self.sequence_ids.iter().filter(|id| **id != self.id);
        let own = [&self.id].into_iter().chain(others).map(String::as_str);
        self.policy.own_links_only.then_some(own)
    }

    /// Reports whether the scopes and the policy can go together: a key that manages keys or webhooks, or reads the audit log,
    /// would reach the links of others nevertheless.
    pub fn is_consistent(&self) -> bool {
        let reaches_all = [Scope::Admin, Scope::KeysAdmin, Scope::WebhooksAdmin];
        !self.policy.own_links_only || !self.scopes.iter().any(|it| reaches_all.contains(it))
    }

    /// Reports whether the key grants a scope.
    pub fn allows(&self, scope: Scope) -> bool {
        self.scopes.contains(&scope) || self.scopes.contains(&Scope::Admin)
    }
}

impl fmt::Debug for ApiKey {
    /// Leaves out the digest of the secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ApiKey")
            .field("id", &self.id)
            .field("name", &self.name)
            .field("scopes", &self.scopes)
            .field("rate_limit", &self.rate_limit)
            .field("policy", &self.policy)
            .field("created_at", &self.created_at)
            .field("expires_at", &self.expires_at)
            .field("revoked_at", &self.revoked_at)
            .field("successor_id", &self.successor_id)
            .field("first_id", &self.first_id)
            .field("person", &self.person)
            .finish_non_exhaustive()
    }
}

/// A key as a caller presents it.
pub struct PresentedKey {
    /// Id that the caller claims.
    pub id: String,
    secret_sha256: [u8; 32],
}

impl fmt::Debug for PresentedKey {
    /// Leaves out the digest of the secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("PresentedKey").field(&self.id).finish()
    }
}

impl PresentedKey {
    /// Reads a key's text; `None` when it does not look like one.
    pub fn parse(text: &str) -> Option<Self> {
        let rest = text.strip_prefix(PREFIX)?.strip_prefix('_')?;
        let (id, secret) = rest.split_once('_')?;
        let is_drawn = |part: &str, length| {
            part.len() == length && part.bytes().all(|byte| byte.is_ascii_alphanumeric())
        };
        (is_drawn(id, ID_LENGTH) && is_drawn(secret, SECRET_LENGTH)).then(|| Self {
            id: id.to_owned(),
            secret_sha256: Sha256::digest(secret).into(),
        })
    }
}

fn random_text(length: usize, rng: &mut (impl CryptoRng + ?Sized)) -> String {
    random_characters(Alphabet::Base62.characters(), length, rng)
        .into_iter()
        .map(char::from)
        .collect()
}

#[cfg(test)]
mod tests {
    use jiff::SignedDuration;
    use rand::SeedableRng;
    use rand::rngs::StdRng;

    use super::*;

    fn generate(seed: u64) -> (ApiKey, String) {
        let mut rng = StdRng::seed_from_u64(seed);
        ApiKey::generate("test".to_owned(), vec![], Timestamp::UNIX_EPOCH, &mut rng)
    }

    #[test]
    fn only_its_own_text_opens_a_key_and_only_until_it_expires_or_is_revoked() {
        let (mut key, text) = generate(1);
        let (other, _) = generate(2);
        let now: Timestamp = "2026-06-01T00:00:00Z".parse().expect("a moment");
        let presented = PresentedKey::parse(&text).expect("a key's own text");
        assert_eq!(presented.id, key.id);
        assert!(key.admits(&presented, now));
        assert!(!other.admits(&presented, now));
        key.expires_at = Some(now);
        let before = now - SignedDuration::from_millis(1);
        assert!(key.admits(&presented, before));
        assert!(!key.admits(&presented, now));
        assert_eq!(key.state(now), KeyState::Expired);
        key.revoked_at = Some(before);
        assert!(!key.admits(&presented, before));
        assert_eq!(key.state(now), KeyState::Revoked);
    }

    #[test]
    fn texts_of_another_shape_are_no_keys() {
        let (key, text) = generate(1);
        let secret = &text[text.len() - SECRET_LENGTH..];
        for (text, is_key) in [
            (text.clone(), true),
            (String::new(), false),
            ("slk".to_owned(), false),
            (format!("slk_{}", key.id), false),
            (format!("slk_{}_", key.id), false),
            (format!("slk__{secret}"), false),
            (format!("slx_{}_{secret}", key.id), false),
            (format!("{text}x"), false),
            (text[..text.len() - 1].to_owned(), false),
            (format!("slk_{}_{}-", key.id, &secret[1..]), false),
            (format!(" {text}"), false),
        ] {
            assert_eq!(PresentedKey::parse(&text).is_some(), is_key, "{text}");
        }
    }

    #[test]
    fn admin_allows_everything_and_other_scopes_just_themselves() {
        let (mut key, _) = generate(1);
        for (scopes, wanted, allowed) in [
            (vec![], Scope::LinksRead, false),
            (vec![Scope::LinksRead], Scope::LinksRead, true),
            (vec![Scope::LinksRead], Scope::LinksWrite, false),
            (vec![Scope::LinksWrite], Scope::LinksRead, false),
            (vec![Scope::LinksWrite], Scope::Admin, false),
            (vec![Scope::KeysAdmin], Scope::Admin, false),
            (vec![Scope::KeysAdmin], Scope::LinksRead, false),
            (vec![Scope::Admin], Scope::LinksWrite, true),
        ] {
            key.scopes = scopes;
            assert_eq!(key.allows(wanted), allowed, "{:?} {wanted}", key.scopes);
        }
    }

    #[test]
    fn a_key_reaches_the_links_of_its_own_sequence_and_only_if_its_policy_says_so() {
        let (mut key, _) = generate(1);
        assert!(key.own_ids().is_none());
        assert!(key.reaches("another"));
        key.policy.own_links_only = true;
        key.sequence_ids = vec![key.id.clone(), "successor".to_owned()];
        for (id, is_reached) in [(&*key.id, true), ("successor", true), ("another", false)] {
            assert_eq!(key.reaches(id), is_reached, "{id}");
        }
        assert_eq!(key.own_ids().map(Iterator::count), Some(2));
        for (scope, is_consistent) in [
            (Scope::LinksWrite, true),
            (Scope::KeysAdmin, false),
            (Scope::Admin, false),
        ] {
            key.scopes = vec![Scope::LinksRead, scope];
            assert_eq!(key.is_consistent(), is_consistent, "{scope}");
        }
    }

    #[test]
    fn a_person_has_no_secret_and_just_a_live_person_has_sessions() {
        let (key, text) = generate(1);
        let presented = PresentedKey::parse(&text).expect("a key's own text");
        let now = Timestamp::UNIX_EPOCH;
        let person = Person {
            issuer: "https://id.example.com".to_owned(),
            subject: "7".to_owned(),
            email: None,
            role: Some(Role::Viewer),
            signed_in_at: now,
        };
        let mut rng = StdRng::seed_from_u64(2);
        let person = ApiKey::of_person("Ann".to_owned(), person, now, &mut rng);
        assert_eq!(person.scopes, Role::Viewer.scopes());
        // Even with the digest of a known secret.
        let known = ApiKey {
            secret_sha256: key.secret_sha256,
            ..person.clone()
        };
        assert!(key.admits(&presented, now) && !known.admits(&presented, now));
        assert!(person.admits_sessions(now) && !key.admits_sessions(now));
        let blocked = ApiKey {
            revoked_at: Some(now),
            ..person
        };
        assert!(!blocked.admits_sessions(now));
    }

    #[test]
    fn debug_output_keeps_the_digest_to_itself() {
        let (key, _) = generate(1);
        assert!(!format!("{key:?}").contains("secret"));
    }
}
