//! Making, changing, pausing, revoking and finding links.
//!
//! Every change takes the same three steps: it is stored together with a row in the outbox, it
//! is delivered to Redis, and the caller is answered. The first alone decides whether it
//! happened; the answer says whether the second has been confirmed.

use std::sync::Arc;

use jiff::Timestamp;
use vocabulary::{Code, CodeError, CodeRules, Verdict};

use super::issue::Issuer;
use super::new_link::{LinkError, NewLink, Stored};
use crate::clock::Clock;
use crate::core::audit::{Action, ChangedBy};
use crate::core::codes::reserved::ReservedWords;
use crate::core::link::{Change, Edit, Expected, Link, PastChange};
use crate::core::ports::{Delivery, Edited, Listing, Position};
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
        apply: impl Fn(Link, Timestamp) -> Edit + Send + Sync + 'static,
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
