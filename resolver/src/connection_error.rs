//! The reasons for which a connection to Redis is given up.

use std::fmt;

use crate::resp::ProtocolError;

/// Reason for which a connection must be given up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConnectionError {
    /// The connection could not be made, or broke.
    Lost,
    /// Redis sent something that violates its protocol.
    Protocol(&'static str),
    /// Redis refused the handshake, with this text.
    Refused(String),
    /// Redis did not accept the connection or shake hands in time.
    ConnectTimeout,
    /// Redis has owed a reply for too long.
    Stalled,
    /// The server has another role than is asked for, or has lost its master: its role.
    Role(String),
    /// The server does not belong to those that are asked any more.
    Retired,
}

impl fmt::Display for ConnectionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lost => f.write_str("the connection broke"),
            Self::Protocol(what) => write!(f, "it does not speak the protocol of Redis: {what}"),
            Self::Refused(text) => {
                write!(
                    f,
                    "it refused the handshake (Redis 6 or newer is needed, and what it asks for to \
                     log in): {text}"
                )
            }
            Self::ConnectTimeout => f.write_str("it did not answer the handshake in time"),
            Self::Stalled => f.write_str("it no longer answers"),
            Self::Role(role) => write!(f, "it can't be read from: {role}"),
            Self::Retired => f.write_str("another server has taken its place"),
        }
    }
}

impl std::error::Error for ConnectionError {}

impl From<ProtocolError> for ConnectionError {
    fn from(ProtocolError(what): ProtocolError) -> Self {
        Self::Protocol(what)
    }
}
