//! Errors of ClickHouse, with what to do.

use clickhouse::error::Error;

use crate::ClickHouse;

/// A failed operation of ClickHouse, which may have had an effect nevertheless.
#[derive(Debug, thiserror::Error)]
pub enum Fault {
    /// The server can't be reached.
    #[error(
        "ClickHouse at {address} can't be reached: {reason}; start it, or correct visits.clickhouse. New visits wait in Redis"
    )]
    Unreachable {
        /// The server.
        address: String,
        /// The reason.
        reason: String,
    },
    /// The server does not answer.
    #[error(
        "ClickHouse at {address} has not answered for {seconds} s; look at its log and its load"
    )]
    Silent {
        /// The server.
        address: String,
        /// The time limit.
        seconds: u64,
    },
    /// The server has no space left.
    #[error(
        "ClickHouse at {address} has no space left; free or add some. New visits wait in Redis. It reports: {reason}"
    )]
    Full {
        /// The server.
        address: String,
        /// Its message.
        reason: String,
    },
    /// The server refuses the user.
    #[error(
        "ClickHouse at {address} refuses the user: correct user and password in visits.clickhouse, or the user's grants. It reports: {reason}"
    )]
    Refused {
        /// The server.
        address: String,
        /// Its message.
        reason: String,
    },
    /// The tables are missing.
    #[error(
        "ClickHouse at {address} lacks the tables of visits; run `shortlink migrate` if it is new, or restore its backup. It reports: {reason}"
    )]
    Missing {
        /// The server.
        address: String,
        /// Its message.
        reason: String,
    },
    /// The tables are those of another version.
    #[error(
        "the tables of visits in ClickHouse at {address} have the version {version}, this program has {own}; {advice}"
    )]
    Version {
        /// The server.
        address: String,
        /// The version there.
        version: u32,
        /// The version of this program.
        own: u32,
        /// Advice for the operator.
        advice: &'static str,
    },
    /// A table has other columns.
    #[error(
        "the tables of visits in ClickHouse at {address} differ from those that `shortlink migrate` makes: {reason}; restore them from a backup, or name another database in visits.clickhouse"
    )]
    Schema {
        /// The server.
        address: String,
        /// The difference.
        reason: String,
    },
    /// The visits are those of another SQL database.
    #[error(
        "the visits in ClickHouse at {address} belong to another SQL database; name another database in visits.clickhouse, or correct database.url"
    )]
    Owner {
        /// The server.
        address: String,
    },
    /// Anything else.
    #[error("ClickHouse at {address} reports: {reason}")]
    Other {
        /// The server.
        address: String,
        /// Its message.
        reason: String,
    },
}

impl ClickHouse {
    /// The fault behind an error.
    pub(crate) fn fault(&self, error: &Error) -> Fault {
        let address = self.address.clone();
        let reason = match error {
            Error::BadResponse(reason) => reason.trim().to_owned(),
            Error::Network(source) => innermost(&**source),
            Error::SchemaMismatch(reason) => reason.clone(),
            other => other.to_string(),
        };
        match (error, code(&reason)) {
            (Error::Network(_), _) => Fault::Unreachable { address, reason },
            (Error::TimedOut, _) => Fault::Silent {
                address,
                seconds: 0,
            },
            (Error::SchemaMismatch(_), _) => Fault::Schema { address, reason },
            // NOT_ENOUGH_SPACE, and an error of a file or a descriptor.
            (_, Some(243)) => Fault::Full { address, reason },
            (_, Some(74 | 75)) if reason.contains("No space left") => {
                Fault::Full { address, reason }
            }
            // Unknown user, wrong password, access, authentication.
            (_, Some(192..=195 | 497 | 516)) => Fault::Refused { address, reason },
            // Unknown table, unknown database.
            (_, Some(60 | 81)) => Fault::Missing { address, reason },
            // Unknown column, wrong type.
            (_, Some(16 | 47 | 53)) => Fault::Schema { address, reason },
            _ => Fault::Other { address, reason },
        }
    }
}

/// ClickHouse's number of an error: `Code: 60. DB::Exception: …`.
fn code(reason: &str) -> Option<u32> {
    let rest = reason.strip_prefix("Code: ")?;
    let digits = rest.find(|it: char| !it.is_ascii_digit());
    rest[..digits.unwrap_or(rest.len())].parse().ok()
}

/// The message of the cause of all causes: those above only repeat that a connection failed.
fn innermost(error: &(dyn std::error::Error + 'static)) -> String {
    let mut error = error;
    while let Some(source) = error.source() {
        error = source;
    }
    error.to_string()
}
