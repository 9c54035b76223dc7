//! Links as files: what other services export, read row by row, and what this one exports.
//!
//! - [`columns`]: which column of a foreign file means what.
//! - [`input`]: files, standard input, gzip and byte order marks.
//! - [`csv`], [`ndjson`]: rows of the two formats, whatever is wrong with them, in bounded memory.
//! - [`moment`]: the ways in which files write times.
//! - [`row`]: makes a link of a row, or says why it can't be one. What a link consists of stands
//!   there and in [`export`] alone.
//! - [`windows`]: reads ahead, many rows at a time.
//! - [`report`]: counts what became of the rows.
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
