//! Making, changing, pausing, revoking and finding links.
//!
//! Every change takes the same three steps: it is stored together with a row in the outbox, it
//! is delivered to Redis, and the caller is answered. The first alone decides whether it
//! happened; the answer says whether the second has been confirmed.

use std::num::NonZeroU64;
use std::sync::Arc;

use jiff::Timestamp;
use sha2::{Digest, Sha256};
use vocabulary::{Code, CodeError, CodeRules, RedirectStatus, Verdict};

use super::issue::{CodePolicy, Issuer, NoCode};
use crate::clock::Clock;
use crate::core::audit::{Action, ChangedBy};
use crate::core::codes::reserved::ReservedWords;
use crate::core::link::{Change, Destination, Edit, Expected, Link, PastChange, Refusal, Second};
use crate::core::ports::{Delivery, Edited, Listing, Position, RequestDigest, StoreError};
use crate::store::Store;

/// How many links are looked at for one page of a listing.
pub const MOST_READ: u32 = 10_000;

/// A page of a listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    /// The links.
    pub links: Vec<Link>,
    /// How far was looked; `None` for to the end, or as far as the page needed.
    pub read_to: Option<Position>,
}

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

/// Makes, changes, revokes and finds links.
pub struct Links {
    /// Where links are kept.
    pub store: Arc<Store>,
    /// How Redis is told.
    pub delivery: Arc<dyn Delivery>,
    /// Makes new ones.
    pub issuer: Issuer,
    /// What codes look like.
    pub rules: CodeRules,
    /// Which words are no codes.
    pub reserved: ReservedWords,
    /// What time it is.
    pub clock: Arc<dyn Clock>,
}

impl Links {
    /// Reads a code that somebody has chosen.
    ///
    /// # Errors
    /// When it is not of the shape of a code, is reserved, or would never be resolved.
    pub fn parse_slug(&self, text: &str) -> Result<Code, SlugError> {
        let code = Code::parse(text.as_bytes())?;
        if self.reserved.contain(&code) {
            return Err(SlugError::Reserved);
        }
        match self.rules.judge(&code) {
            Verdict::Issued | Verdict::Foreign => Ok(code),
            Verdict::WrongCheck => Err(SlugError::WrongCheck {
                length: code.as_bytes().len(),
            }),
        }
    }

    /// Makes a link.
    ///
    /// # Errors
    /// When the code that it must have is taken, no code can be drawn, or the store fails.
    pub async fn create(&self, new: NewLink) -> Result<Stored, LinkError> {
        self.issuer.create(new).await
    }

    /// Finds a link.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn find(&self, code: &Code) -> Result<Option<Link>, LinkError> {
        Ok(self.store.find_link(code).await?)
    }

    /// Lists links, the latest first.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn list(&self, listing: &Listing) -> Result<Vec<Link>, LinkError> {
        Ok(self.store.list_links(listing).await?)
    }

    /// A page of a listing. It looks at no more than [`MOST_READ`] links for it: few may be as they
    /// are asked for, among millions.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn page(&self, listing: &Listing) -> Result<Page, LinkError> {
        let reach = match listing.is_searched() {
            true => self.store.listing_reach(listing, MOST_READ).await?,
            false => None,
        };
        // Looked for first: links that are made meanwhile are before all of these.
        let bounded = Listing {
            until: reach,
            ..listing.clone()
        };
        let links = self.store.list_links(&bounded).await?;
        let is_full = links.len() >= listing.limit as usize;
        Ok(Page {
            links,
            read_to: reach.filter(|_| !is_full),
        })
    }

    /// The changes that a link has been through, the latest first, at most `limit`: all, or those
    /// before the change that left this revision behind.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn history(
        &self,
        code: &Code,
        before: Option<u64>,
        limit: u32,
    ) -> Result<Option<Vec<PastChange>>, LinkError> {
        Ok(self.store.link_history(code, before, limit).await?)
    }

    /// Changes a link. A change to what the link is already makes no revision.
    ///
    /// # Errors
    /// When the link is revoked, is not as expected or would never be valid, or the store fails.
    pub async fn change(
        &self,
        code: &Code,
        change: Change,
        caller: EditedBy,
    ) -> Result<Option<Stored>, LinkError> {
        let change = move |link: Link, now| link.change(&change, now);
        self.edit(code, caller, Action::LinkChange, change).await
    }

    /// Pauses a link. A paused one stays as it is, which is no error.
    ///
    /// # Errors
    /// When the link is revoked or not as expected, or the store fails.
    pub async fn pause(&self, code: &Code, caller: EditedBy) -> Result<Option<Stored>, LinkError> {
        self.edit(code, caller, Action::LinkPause, Link::pause)
            .await
    }

    /// Ends a link's pause. One that is not paused stays as it is, which is no error.
    ///
    /// # Errors
    /// When the link is revoked or not as expected, or the store fails.
    pub async fn resume(&self, code: &Code, caller: EditedBy) -> Result<Option<Stored>, LinkError> {
        self.edit(code, caller, Action::LinkResume, Link::resume)
            .await
    }

    /// Revokes a link. A revoked one stays as it is, which is no error.
    ///
    /// # Errors
    /// When the link is not as expected or the store fails.
    pub async fn revoke(&self, code: &Code, caller: EditedBy) -> Result<Option<Stored>, LinkError> {
        self.edit(code, caller, Action::LinkRevoke, Link::revoke)
            .await
    }

    async fn edit(
        &self,
        code: &Code,
        EditedBy { key_id, expected }: EditedBy,
        action: Action,
        apply: impl FnOnce(Link, Timestamp) -> Edit + Send + 'static,
    ) -> Result<Option<Stored>, LinkError> {
        let now = self.clock.now();
        let editor = Box::new(move |link: Link| {
            let revision = link.revision;
            apply(link, now).only_of(&expected, revision)
        });
        let by = ChangedBy {
            key_id: Some(key_id),
            action,
        };
        let edited = self.store.edit_link(code, &by, editor).await?;
        let Some(Edited { edit, receipt }) = edited else {
            return Ok(None);
        };
        match edit {
            Edit::Changed(link) | Edit::Unchanged(link) => {
                let links = std::slice::from_ref(&link);
                let published = self.delivery.deliver(links, receipt).await;
                Ok(Some(Stored {
                    link,
                    published,
                    is_new: false,
                }))
            }
            Edit::Refused(refusal) => Err(LinkError::Refused {
                code: *code,
                refusal,
            }),
        }
    }
}

/// Who asks for a change, and of what.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EditedBy {
    /// The id of the API key that asks.
    pub key_id: String,
    /// Which revisions of the link are to be changed.
    pub expected: Expected,
}

/// Why a code that somebody has chosen can't be had, in words for that somebody.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SlugError {
    /// It is not of the shape of a code.
    #[error(transparent)]
    Shape(#[from] CodeError),
    /// It is a reserved word.
    #[error("is a reserved word")]
    Reserved,
    /// It looks like a mistyped issued code, which the edge refuses without asking anybody.
    #[error(
        "has the length of issued codes ({length}) and so must end with the right check \
         character; use another length"
    )]
    WrongCheck {
        /// How many characters it has.
        length: usize,
    },
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
