//! What the edge (nginx) and the sidecar must agree on, written once.
//!
//! - [`alphabet`] and [`code`]: which characters a code is made of, how long it may be, and
//!   what makes its check character right.
//! - [`keys`]: the names of everything kept in Redis.
//! - [`record`]: what stands under a link's key.
//! - [`target`]: what a target must look like to be put into a `Location` header.
//! - [`visit`]: one followed link, as the edge reports it.
//! - [`siphash`]: the keyed function behind check characters, for whoever needs one.
//!
//! This crate does no I/O, reads no clock, draws no random number and has no dependencies.
//! Every format here is held by golden files (`golden/`): a change that alters one is a change
//! of the format and moves its version.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), no_std)]

extern crate alloc;

pub mod alphabet;
pub mod check;
pub mod code;
pub mod keys;
pub mod number;
pub mod record;
pub mod siphash;
pub mod target;
pub mod visit;

pub use alphabet::Alphabet;
pub use check::{Check, CheckKey, CheckKeys, CheckKeysError};
pub use code::{BodyLengths, Code, CodeError, CodeRules, MAX_CODE_LENGTH, Verdict};
pub use keys::{KeyPrefix, KeyPrefixError};
pub use record::{LinkRecord, Record, RecordError, RedirectStatus};
