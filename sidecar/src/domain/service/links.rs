//! Making, changing, revoking and finding links.
//!
//! Every change takes the same three steps: it is stored together with a row in the outbox, it
//! is delivered to Redis, and the caller is answered. The first alone decides whether it
//! happened; the answer says whether the second has been confirmed.

use std::sync::Arc;

use jiff::Timestamp;
use vocabulary::{Code, CodeError, CodeRules, RedirectStatus, Verdict};

use super::issue::{CodePolicy, Issuer, NoCode};
use crate::clock::Clock;
use crate::domain::codes::reserved::ReservedWords;
use crate::domain::link::{Change, Edit, Expiry, Link};
use crate::domain::ports::{Delivery, Edited, Listing, Store, StoreError};
use crate::domain::target::Target;

/// What a new link is to be.
#[derive(Clone, Debug)]
pub struct NewLink {
    /// Where it leads.
    pub target: Target,
    /// The code that it must have; `None` to have one drawn.
    pub slug: Option<Code>,
    /// How a code is drawn.
    pub policy: CodePolicy,
    /// How it redirects.
    pub redirect_status: RedirectStatus,
    /// From when on it answers 410.
    pub expires_at: Option<Expiry>,
    /// The id of the API key that asks for it.
    pub created_by: String,
}

impl NewLink {
    /// The link with a code.
    pub(super) fn link(&self, code: Code, now: Timestamp) -> Link {
        Link {
            code,
            target: self.target.clone(),
            redirect_status: self.redirect_status,
            revision: 1,
            expires_at: self.expires_at,
            revoked_at: None,
            created_at: now,
            updated_at: now,
            created_by: self.created_by.clone(),
        }
    }
}

/// A link that is stored, and whether Redis knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stored {
    /// The link.
    pub link: Link,
    /// Whether Redis has confirmed this revision. If not, it is told as soon as it can be.
    pub published: bool,
}

/// Makes, changes, revokes and finds links.
pub struct Links {
    /// Where links are kept.
    pub store: Arc<dyn Store>,
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

    /// Changes a link. A change to what the link is already makes no revision.
    ///
    /// # Errors
    /// When the link is revoked or the store fails.
    pub async fn change(&self, code: &Code, change: Change) -> Result<Option<Stored>, LinkError> {
        let now = self.clock.now();
        let editor = Box::new(move |link: Link| link.change(&change, now));
        let edited = self.store.edit_link(code, editor).await?;
        self.delivered(*code, edited).await
    }

    /// Revokes a link. A revoked one stays as it is, which is no error.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn revoke(&self, code: &Code) -> Result<Option<Stored>, LinkError> {
        let now = self.clock.now();
        let editor = Box::new(move |link: Link| link.revoke(now));
        let edited = self.store.edit_link(code, editor).await?;
        self.delivered(*code, edited).await
    }

    async fn delivered(
        &self,
        code: Code,
        edited: Option<Edited>,
    ) -> Result<Option<Stored>, LinkError> {
        let Some(Edited { edit, receipt }) = edited else {
            return Ok(None);
        };
        match edit {
            Edit::Changed(link) | Edit::Unchanged(link) => {
                let links = std::slice::from_ref(&link);
                let published = self.delivery.deliver(links, receipt).await;
                Ok(Some(Stored { link, published }))
            }
            Edit::Refused => Err(LinkError::Revoked { code }),
        }
    }
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
    /// The link is revoked, which is final.
    #[error("the link {code} is revoked")]
    Revoked {
        /// The link's code.
        code: Code,
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
