//! Files of visits for a data warehouse: Parquet, by day, in a directory or in a bucket of S3.
//!
//! An export writes the visits in the order in which they were stored, a part at a time. The note of its progress
//! ([`Progress`]) lies beside the files. It names a part before its files are written, and their names follow from the
//! part, so that a repeated export writes the same files again.
#![forbid(unsafe_code)]

mod bucket;
mod columns;
mod connection;
mod destination;
mod files;
mod progress;

pub use destination::Destination;
pub use files::PartFiles;
pub use progress::Progress;

/// The failure of an export at its destination.
#[derive(Debug, thiserror::Error)]
pub enum WarehouseError {
    /// The destination is no directory and no URL of S3.
    #[error("{0}: {1}; allowed are a directory, or s3://BUCKET/PREFIX")]
    Destination(String, &'static str),
    /// A variable of the environment is invalid.
    #[error("{0} is invalid; allowed are {1}")]
    Setting(String, &'static str),
    /// The variables of the environment contradict each other.
    #[error("the variables AWS_… are invalid: {0}")]
    Settings(String),
    /// No variable of the environment has credentials of S3.
    #[error("S3 has no credentials: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY")]
    NoCredentials,
    /// A file is not readable or writable.
    #[error("{0} can't be {1}")]
    File(String, &'static str, #[source] std::io::Error),
    /// S3 has no such bucket.
    #[error("{0} can't be written: the bucket does not exist; create it, or name another one")]
    NoBucket(String),
    /// S3 does not accept the credentials.
    #[error(
        "{0}: access denied; check AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and the permissions ListBucket, GetObject \
         and PutObject"
    )]
    Denied(String),
    /// S3 failed.
    #[error("{0} can't be {1}: {2}")]
    Object(String, &'static str, String),
    /// The note of the progress was written by another program.
    #[error("{0} is not the progress of an export that this version can continue: {1}")]
    Progress(String, String),
    /// The visits can't be encoded.
    #[error("visits can't be encoded as Parquet")]
    Parquet(#[from] parquet::errors::ParquetError),
}

/// The last cause of an error of S3, whose texts repeat each other.
fn cause(error: &object_store::Error) -> String {
    let mut cause: &dyn std::error::Error = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    cause.to_string()
}
