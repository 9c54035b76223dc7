//! New links: the request for one, and its results.

use std::num::NonZeroU64;
use std::sync::Arc;

use jiff::Timestamp;
use sha2::{Digest, Sha256};
use vocabulary::{Code, RedirectStatus};

use super::codes::strategy::DrawError;
use crate::core::codes::strategy::CodePolicy;
use crate::core::link::{Destination, Link, Refusal, Second};
use crate::core::ports::{RequestDigest, StoreError};

/// What a new link is to be.
#[derive(Clone, Debug)]
pub struct NewLink {
    /// Where it leads.
    pub destination: Destination,
    /// The code that it must have; `None` to have one drawn.
    pub slug: Option<Code>,
    /// How a code is drawn.
    pub policy: CodePolicy,
    /// How it redirects to a target of its own.
    pub redirect_status: RedirectStatus,
    /// Whether the visitor's query is appended to a target of its own.
    pub forward_query: bool,
    /// Before this second it answers 404.
    pub valid_since: Option<Second>,
    /// From this second on it answers 410.
    pub valid_until: Option<Second>,
    /// After about how many visits it is to end.
    pub max_visits: Option<NonZeroU64>,
    /// What the caller calls it.
    pub external_id: Option<String>,
    /// What people want to remember of it.
    pub note: Option<String>,
    /// What it is found by, in ascending order and each once.
    pub tags: Vec<String>,
    /// Whether a link that was made for the same request, and is as it was, will do. For links
    /// without a code of their own.
    pub dedupe: bool,
    /// The id of the API key that asks for it.
    pub created_by: String,
}

impl NewLink {
    /// The link with a code.
    pub(super) fn link(&self, code: Code, now: Timestamp) -> Link {
        Link {
            code,
            destination: self.destination.clone(),
            redirect_status: self.redirect_status,
            forward_query: self.forward_query,
            revision: 1,
            valid_since: self.valid_since,
            valid_until: self.valid_until,
            max_visits: self.max_visits,
            paused_at: None,
            revoked_at: None,
            created_at: now,
            updated_at: now,
            created_by: self.created_by.clone(),
            external_id: self.external_id.clone(),
            note: self.note.clone(),
            tags: self.tags.clone(),
        }
    }

    /// What is asked for, by whomever; `None` when another link will not do.
    pub(super) fn digest(&self) -> Option<RequestDigest> {
        if !self.dedupe || self.slug.is_some() {
            return None;
        }
        let mut hash = Sha256::new();
        // Another way of writing a request down begins with another number.
        hash.update(b"1");
        // Each part with its length: what is in one part is never taken for another.
        let mut add = |part: &[u8]| {
            hash.update((part.len() as u64).to_be_bytes());
            hash.update(part);
        };
        let second = |second: Option<Second>| second.map_or(0, Second::get).to_be_bytes();
        let (shortest, longest) = self.policy.lengths;
        add(self.destination.text().as_bytes());
        add(self.policy.strategy.name().as_bytes());
        add(&[shortest, longest, u8::from(self.forward_query)]);
        add(&self.redirect_status.code().to_be_bytes());
        add(&second(self.valid_since));
        add(&second(self.valid_until));
        add(&self.max_visits.map_or(0, NonZeroU64::get).to_be_bytes());
        // Neither of these is ever empty.
        add(self.external_id.as_deref().unwrap_or_default().as_bytes());
        add(self.note.as_deref().unwrap_or_default().as_bytes());
        for tag in &self.tags {
            add(tag.as_bytes());
        }
        Some(RequestDigest(hash.finalize().into()))
    }
}

/// A link that is stored, and whether Redis knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stored {
    /// The link.
    pub link: Link,
    /// Whether Redis has confirmed this revision. If not, it is told as soon as it can be.
    pub published: bool,
    /// Whether it was made just now, and not before.
    pub is_new: bool,
}

/// Why something could not be done with a link.
#[derive(Debug, thiserror::Error)]
pub enum LinkError {
    /// Another link, possibly a revoked or expired one, has the code.
    #[error("the code {code} is taken")]
    Taken {
        /// The code.
        code: Code,
    },
    /// The link may not be changed so.
    #[error("the link {code} is not changed: {refusal:?}")]
    Refused {
        /// The link's code.
        code: Code,
        /// Why not.
        refusal: Refusal,
    },
    /// The link was made when the request came before, and deleted since.
    #[error("the link {code} was made before, and deleted since")]
    Forgotten {
        /// The link's code.
        code: Code,
    },
    /// Every code that was drawn is taken.
    #[error("{draws} codes were drawn and all of them are taken or reserved")]
    Exhausted {
        /// How many were drawn.
        draws: u32,
    },
    /// No code can be drawn.
    #[error("no code can be drawn")]
    NoCode(#[source] Arc<NoCode>),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The process is about to end.
    #[error("no links are made any more: the process is about to end")]
    Stopped,
}

/// Why no code can be drawn.
#[derive(Debug, thiserror::Error)]
pub enum NoCode {
    /// Too many codes of every length that the policy allows are in use.
    #[error("all lengths that the policy allows are full")]
    Full,
    /// The strategy has none.
    #[error(transparent)]
    Draw(#[from] DrawError),
    /// The store does not say how many codes are in use.
    #[error(transparent)]
    Store(#[from] StoreError),
}
