//! Formats and rules that the edge (nginx) and the sidecar share, written once.
//!
//! - [`alphabet`] and [`code`]: the characters and lengths of codes, and their check characters.
//! - [`keys`]: the names of all keys in Redis.
//! - [`generation`]: the value that proves that a data set is current.
//! - [`record`]: the value of a link's or a campaign's key; its parts are [`validity`],
//!   [`campaign`] and [`parameters`].
//! - [`judge`]: the answer that follows from records at a time, for the edge and for the sidecar.
//! - [`state`]: the states of links and campaigns, and their order of precedence.
//! - [`target`]: the condition for a target to be put into a `Location` header.
//! - [`plan`]: targets that depend on the visitor; [`language`]: the one that a visitor asks for.
//! - [`preview`]: what messengers show of a link, and their preview agents.
//! - [`template`]: the target of a campaign, and how it becomes that of a link.
//! - [`click`]: the ids of clicks, which targets get if their record says so.
//! - [`domains`]: the short domains, in `domains.conf` and as nginx announces them to the sidecar.
//! - [`visit`]: one followed link, as the edge reports it; [`address`]: what stays of its client's
//!   address.
//! - [`siphash`]: the keyed function behind check characters.
//!
//! This crate does no I/O, reads no clock, draws no random number and has no dependencies.
//! Every format here is held by golden files (`golden/`): a change that alters one is a change
//! of the format and moves its version.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), no_std)]

extern crate alloc;

pub mod address;
pub mod alphabet;
pub mod campaign;
pub mod check;
pub mod click;
pub mod code;
pub mod domains;
pub mod generation;
pub mod judge;
pub mod keys;
pub mod language;
pub mod number;
pub mod parameters;
pub mod plan;
pub mod preview;
pub mod record;
pub mod siphash;
pub mod slot;
pub mod state;
pub mod target;
pub mod template;
pub mod validity;
pub mod visit;

pub use alphabet::Alphabet;
pub use campaign::{CampaignId, CampaignIdError};
pub use check::{Check, CheckKey, CheckKeys, CheckKeysError};
pub use click::{CLICK_ID_LENGTH, ClickId, ClickIds};
pub use code::{BodyLengths, Code, CodeError, CodeRules, MAX_CODE_LENGTH, Verdict};
pub use generation::Generation;
pub use judge::{Answer, BadNews, Found, Judgement, MissReason, Ruling};
pub use keys::{KeyPrefix, KeyPrefixError};
pub use parameters::{Parameters, ParametersError, ValueError, encode_parameters, encode_value};
pub use plan::{Instead, Plan};
pub use preview::Preview;
pub use record::{CampaignLinkRecord, LinkRecord, Record, RecordError, RedirectStatus};
pub use state::State;
pub use template::{ExpandError, Template, TemplateError};
pub use validity::{Phase, Validity};
