//! The API's nouns. A link, a campaign and an API key are each declared once, in [`link`], [`campaign`] and
//! [`key`]: their members with JSON name, kind, documentation, and how `null` is read.
//!
//! Everything else follows from the declaration: the reader of request bodies, which reports all faults at once
//! with JSON pointers; schemas of requests and answers; the bodies of answers; columns of CSV; options of the
//! command line. Nothing here knows the server, so that clients can use it as well.
#![forbid(unsafe_code)]

pub mod campaign;
pub mod cells;
pub mod conversion;
pub mod csv_parser;
pub mod encoding;
pub mod faults;
pub mod fields;
pub mod json;
pub mod key;
pub mod kinds;
pub mod link;
pub mod members;
pub mod message;
pub mod person;
pub mod preview;
pub mod receipt;
pub mod rules;
pub mod schema;
pub mod utm_template;
pub mod variants;
pub mod webhook;
pub mod words;
