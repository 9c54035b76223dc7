//! Files of links: the import of other services' exports, row by row, and the export of links.
//!
//! - [`columns`]: the meaning of the columns of a foreign file.
//! - [`input`]: files, standard input, gzip and byte order marks.
//! - [`csv`], [`ndjson`]: rows of the two formats, whatever is wrong with them, in bounded memory.
//! - [`moment`]: the ways in which files write times.
//! - [`row`]: converts a row to a link, or explains why it is invalid. Only this module and
//!   [`export`] list the members of a link.
//! - [`windows`]: reads ahead, many rows at a time.
//! - [`report`]: counts the outcomes of the rows.
//! - [`export`]: writes links.

pub mod columns;
pub mod csv;
pub mod export;
pub mod input;
pub mod moment;
pub mod ndjson;
pub mod report;
pub mod row;
pub mod windows;
