//! Failures of operations on Redis.

use std::error::Error;
use std::io;

use redis::RedisError;

/// Reason for which an operation failed.
#[derive(Debug)]
pub(super) enum Failure {
    Timeout,
    Away,
    Refused(Box<dyn Error + Send + Sync>),
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::Refused(Box::new(error))
    }
}

impl From<RedisError> for Failure {
    fn from(error: RedisError) -> Self {
        Self::Refused(Box::<dyn Error + Send + Sync>::from(error))
    }
}
