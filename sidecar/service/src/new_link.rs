//! New links: the request for one, and its results.

use std::sync::Arc;

use jiff::Timestamp;
use sha2::{Digest, Sha256};
use shortlink_core::codes::strategy::{CodeOrigin, CodePolicy};
use shortlink_core::link::{Change, Dedupe, Destination, Link, Refusal, UploadId};
use shortlink_core::ports::{Identity, QuotaOwner, RequestDigest, StoreError, UsedUp};
use vocabulary::Code;

use super::codes::strategy::DrawError;

/// A link to create.
#[derive(Clone, Debug)]
pub struct NewLink {
    /// Its target.
    pub destination: Destination,
    /// Its custom code; `None` to draw one.
    pub slug: Option<Code>,
    /// Policy for the drawn code.
    pub policy: CodePolicy,
    /// Its settings, including the defaults of its campaign.
    pub settings: Change,
    /// Accepts an existing link that the same request created and that has not changed since. For links without a
    /// custom code.
    pub dedupe: Dedupe,
    /// The id of the first key of the sequence whose links it can be; `None` for the links of all keys.
    pub dedupe_among: Option<String>,
    /// Id of the API key that creates it.
    pub created_by: String,
    /// Upload that it belongs to.
    pub upload: Option<UploadId>,
    /// True if the key or the campaign has a quota: no code is drawn once that is used up.
    pub has_quota: bool,
}

impl NewLink {
    /// Returns the link with a code.
    pub(super) fn link(&self, code: Code, now: Timestamp) -> Link {
        let (destination, settings) = (self.destination.clone(), self.settings.clone());
        Link {
            upload: self.upload,
            strategy: Some(
                self.slug
                    .map_or(self.policy.strategy.into(), |_| CodeOrigin::Custom),
            ),
            ..Link::new(code, destination, settings, self.created_by.clone(), now)
        }
    }

    /// The owners of its quotas, if it has any.
    pub(super) fn quota_owners(&self) -> impl Iterator<Item = QuotaOwner> + use<> {
        let key = self
            .has_quota
            .then(|| QuotaOwner::Key(self.created_by.clone()));
        let campaign = self.destination.campaign().filter(|_| self.has_quota);
        key.into_iter().chain(campaign.map(QuotaOwner::Campaign))
    }

    /// Returns the identity for deduplication, which is the same for all callers that reach each other's links;
    /// `None` when the link must be new.
    pub(super) fn identity(&self) -> Option<Identity> {
        if self.dedupe == Dedupe::Never || self.slug.is_some() {
            return None;
        }
        let mut hash = Sha256::new();
        // Version of the format that is hashed.
        hash.update(b"1");
        // Each part is preceded by its length, so that parts cannot run into each other.
        let mut add = |part: &[u8]| {
            hash.update((part.len() as u64).to_be_bytes());
            hash.update(part);
        };
        let forwards_query = self.settings.forward_query.unwrap_or_default();
        let (shortest, longest) = self.policy.lengths;
        add(self.destination.text().as_bytes());
        add(self.policy.strategy.name().as_bytes());
        add(&[shortest, longest, u8::from(forwards_query)]);
        self.settings.write_parts(&mut add);
        if let Some(first_id) = &self.dedupe_among {
            // Not a tag, which has at most 64 characters.
            add(&[b'=', 0]);
            add(first_id.as_bytes());
        }
        let within = self.dedupe.window();
        if let Some(window) = within {
            // No tag has a control character.
            add(&[b'=', 1]);
            add(&window.seconds().to_be_bytes());
        }
        let digest = RequestDigest(hash.finalize().into());
        Some(Identity { digest, within })
    }
}

/// A stored link, and the state of its publication.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stored {
    /// The link.
    pub link: Link,
    /// Redis has confirmed this revision. Otherwise the outbox delivers it as soon as possible.
    pub published: bool,
    /// False when an existing link was found.
    pub is_new: bool,
}

/// The reason an operation on a link failed.
#[derive(Debug, thiserror::Error)]
pub enum LinkError {
    /// Another link, possibly a revoked or expired one, has the code.
    #[error("the code {code} is taken")]
    Taken {
        /// The code.
        code: Code,
    },
    /// The change is not allowed.
    #[error("the link {code} is not changed: {refusal:?}")]
    Refused {
        /// The link's code.
        code: Code,
        /// The reason.
        refusal: Refusal,
    },
    /// An earlier attempt of the request created the link, and it was deleted since.
    #[error("the link {code} was created by an earlier attempt and has been deleted since")]
    Forgotten {
        /// The link's code.
        code: Code,
    },
    /// A quota of the API key or of the campaign is used up.
    #[error(transparent)]
    OverQuota(UsedUp),
    /// Every code that was drawn is taken.
    #[error("{draws} codes were drawn and all of them are taken or reserved")]
    Exhausted {
        /// Number of draws.
        draws: u32,
        /// The policy of the code.
        policy: CodePolicy,
    },
    /// No code can be drawn.
    #[error("no code can be drawn")]
    NoCode(#[source] Arc<NoCode>),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The process is shutting down.
    #[error("no links are created any more: the process is shutting down")]
    Stopped,
}

/// The reason no code can be drawn.
#[derive(Debug, thiserror::Error)]
pub enum NoCode {
    /// Too many codes of every length that the policy allows are in use.
    #[error("all lengths that the policy allows are full")]
    Full {
        /// The policy.
        policy: CodePolicy,
    },
    /// The strategy failed.
    #[error(transparent)]
    Draw(#[from] DrawError),
    /// The store cannot return the number of used codes.
    #[error(transparent)]
    Store(#[from] StoreError),
}
