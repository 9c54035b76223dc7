//! Creates, changes, pauses, revokes and finds links.
//!
//! Every change takes three steps: it is stored together with a row in the outbox, delivered to
//! Redis, and answered to the caller. Only the first decides on success; the answer reports whether
//! Redis has confirmed the change.

use std::sync::Arc;

use jiff::Timestamp;
use shortlink_core::audit::{Action, ChangedBy};
use shortlink_core::boxed;
use shortlink_core::clock::Clock;
use shortlink_core::codes::blocklist::Blocklist;
use shortlink_core::codes::reserved::ReservedWords;
use shortlink_core::link::{Change, Edit, Expected, Link};
use shortlink_core::ports::{Delivery, Edited, Editor, Listing, Position, StoreError};
use shortlink_core::revised::Revised;
use shortlink_store::Store;
use vocabulary::{Code, CodeError, CodeRules, Verdict};

use super::issue::Issuer;
use super::new_link::{LinkError, Stored};

/// The most links that are read for one page of a listing.
pub const MOST_READ: u32 = 10_000;

/// A page of a listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    /// The links.
    pub links: Vec<Link>,
    /// The last position that was read; `None` at the end of the listing, or when the page is full.
    pub read_to: Option<Position>,
}

/// Creates, changes, revokes and finds links.
pub struct Links {
    /// Store of the links.
    pub store: Arc<Store>,
    /// The same store for listings, which a replica may answer.
    pub listings: Arc<Store>,
    /// Delivers changes to Redis.
    pub delivery: Arc<dyn Delivery>,
    /// Issues new links.
    pub issuer: Issuer,
    /// Rules for codes.
    pub rules: CodeRules,
    /// Reserved words.
    pub reserved: ReservedWords,
    /// Words that custom codes do not contain.
    pub custom_blocklist: Blocklist,
    /// Clock.
    pub clock: Arc<dyn Clock>,
}

impl Links {
    /// Parses a custom code.
    ///
    /// # Errors
    /// Fails if the text does not have the shape of a code, is reserved, contains a blocked word, or would
    /// never be resolved.
    pub fn parse_slug(&self, text: &str) -> Result<Code, SlugError> {
        let code = Code::parse(text.as_bytes())?;
        if self.reserved.contain(&code) {
            return Err(SlugError::Reserved);
        }
        if self.custom_blocklist.blocks(&code) {
            return Err(SlugError::Blocked);
        }
        match self.rules.judge(&code) {
            Verdict::Issued | Verdict::Foreign => Ok(code),
            Verdict::WrongCheck => Err(SlugError::WrongCheck {
                length: code.as_bytes().len(),
            }),
        }
    }

    /// Returns a page of a listing. It reads at most [`MOST_READ`] links: few of millions may
    /// match.
    ///
    /// # Errors
    /// Fails if the store does.
    #[boxed]
    pub async fn page(&self, listing: &Listing) -> Result<Page, LinkError> {
        let reach = match listing.is_searched() {
            true => self.listings.listing_reach(listing, MOST_READ).await?,
            false => None,
        };
        // Determined first: links created meanwhile are before all of these.
        let bounded = Listing {
            until: reach,
            ..listing.clone()
        };
        let links = self.listings.list_links(&bounded).await?;
        let is_full = links.len() >= listing.limit as usize;
        Ok(Page {
            links,
            read_to: reach.filter(|_| !is_full),
        })
    }

    /// Changes a link. A change without effect creates no revision.
    ///
    /// # Errors
    /// Fails if the link is revoked, is not as expected or would never be valid, or the store
    /// fails.
    #[boxed]
    pub async fn change(
        &self,
        code: &Code,
        change: Change,
        caller: EditedBy,
    ) -> Result<Option<Stored>, LinkError> {
        let change = move |link: Link, now| link.change(&change, now);
        self.edit(code, caller, Action::LinkChange, change).await
    }

    /// Ends an A/B test: the target of a variant becomes that of the link. Without variants, this has no effect and is no
    /// error.
    ///
    /// # Errors
    /// Fails if the link is revoked, not as expected or of a campaign, the variant is none of the test, or the store fails.
    #[boxed]
    pub async fn win(
        &self,
        code: &Code,
        variant: String,
        caller: EditedBy,
    ) -> Result<Option<Stored>, LinkError> {
        let change = move |link: Link, now| link.win(&variant, now);
        self.edit(code, caller, Action::LinkChange, change).await
    }

    /// Pauses a link. Pausing a paused link has no effect and is no error.
    ///
    /// # Errors
    /// Fails if the link is revoked or not as expected, or the store fails.
    #[boxed]
    pub async fn pause(&self, code: &Code, caller: EditedBy) -> Result<Option<Stored>, LinkError> {
        self.edit(code, caller, Action::LinkPause, Link::pause)
            .await
    }

    /// Resumes a paused link. Resuming a link that is not paused has no effect and is no error.
    ///
    /// # Errors
    /// Fails if the link is revoked or not as expected, or the store fails.
    #[boxed]
    pub async fn resume(&self, code: &Code, caller: EditedBy) -> Result<Option<Stored>, LinkError> {
        self.edit(code, caller, Action::LinkResume, Link::resume)
            .await
    }

    /// Revokes a link. Revoking a revoked link has no effect and is no error.
    ///
    /// # Errors
    /// Fails if the link is not as expected or the store fails.
    #[boxed]
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

/// Has `editor` end a link on behalf of the service; returns true if it did.
pub(super) async fn end(
    store: &Store,
    delivery: &dyn Delivery,
    code: &Code,
    action: Action,
    editor: Editor,
) -> Result<bool, StoreError> {
    let by = ChangedBy {
        key_id: None,
        action,
    };
    let edited = store.edit_link(code, &by, editor).await?;
    let Some((Edit::Changed(link), receipt)) = edited.map(|it| (it.edit, it.receipt)) else {
        return Ok(false);
    };
    delivery.deliver(&[link], receipt).await;
    Ok(true)
}

/// The caller of a change, and the revisions that it applies to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EditedBy {
    /// Id of the API key.
    pub key_id: String,
    /// The revisions of the link that may be changed.
    pub expected: Expected,
}

/// The reason a custom code is refused, phrased for the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SlugError {
    /// It does not have the shape of a code.
    #[error(transparent)]
    Shape(#[from] CodeError),
    /// It is a reserved word.
    #[error("is a reserved word")]
    Reserved,
    /// It contains a word of the blocklist.
    #[error("contains a word that codes must not contain")]
    Blocked,
    /// It looks like a mistyped issued code, which the edge rejects without a look-up.
    #[error(
        "has the length of issued codes ({length}) and so must end with the right check \
         character; use another length, or a hyphen or underscore"
    )]
    WrongCheck {
        /// Number of characters.
        length: usize,
    },
}
