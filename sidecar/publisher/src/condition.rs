//! Diagnosis of the Redis servers for operators. It changes nothing there.

use std::collections::HashMap;
use std::error::Error;

use jiff::Timestamp;
use redis::{AsyncConnectionConfig, Client, Cmd, RedisError, Value};
use shortlink_core::boxed;
use vocabulary::KeyPrefix;

use super::servers::{Address, RedisOptions, Servers, UrlError};

/// The state of a server that takes writes, as it reports it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerCondition {
    /// Address of the server.
    pub address: String,
    /// `redis` or, for another program with its commands, the name that this gives itself, such as `valkey`.
    pub program: String,
    /// The version of the program; empty if permission to read it is missing.
    pub version: String,
    /// `master` or `slave`.
    pub role: String,
    /// Its policy for full memory, such as `noeviction`.
    pub maxmemory_policy: String,
    /// Persistence of changes in an append-only file.
    pub has_append_only_file: bool,
    /// Failure of the last write to that file.
    pub write_failed: bool,
    /// The time of its clock, if it may be asked.
    pub now: Option<Timestamp>,
    /// The commands that the sidecar needs and may not use.
    pub forbidden: Vec<String>,
}

/// Reason for which a server can't be examined.
#[derive(Debug, thiserror::Error)]
pub enum ConditionError {
    /// The URL is none of a Redis server.
    #[error(transparent)]
    Url(#[from] UrlError),
    /// The servers can't be found or reached.
    #[error("{0}")]
    Away(String),
}

/// Asks every server that is written to.
///
/// # Errors
/// Fails if the servers can't be found, or one of them can't be reached.
#[boxed]
pub async fn examine(options: &RedisOptions) -> Result<Vec<ServerCondition>, ConditionError> {
    let (prefix, limit) = (&options.prefix, options.timeout);
    let servers = Servers::new(options)?;
    let masters = match tokio::time::timeout(limit, servers.all_masters()).await {
        Ok(masters) => masters.map_err(|error| ConditionError::Away(describe(&*error)))?,
        Err(_elapsed) => return Err(ConditionError::Away("no answer in time".to_owned())),
    };
    let mut conditions = Vec::with_capacity(masters.len());
    for master in masters {
        let address = master.info.addr().to_string();
        let examined = tokio::time::timeout(limit, examine_one(master, prefix)).await;
        let error = match examined {
            Ok(Ok(condition)) => {
                conditions.push(condition);
                continue;
            }
            Ok(Err(error)) => describe(&error),
            Err(_elapsed) => format!("no answer within {} ms", limit.as_millis()),
        };
        return Err(ConditionError::Away(format!("{address}: {error}")));
    }
    Ok(conditions)
}

/// An error with its causes.
fn describe(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(&format!(": {error}"));
        cause = error.source();
    }
    text
}

async fn examine_one(address: Address, prefix: &KeyPrefix) -> Result<ServerCondition, RedisError> {
    let shown = address.info.addr().to_string();
    let config = AsyncConnectionConfig::new()
        .set_connection_timeout(None)
        .set_response_timeout(None);
    let client = Client::open(address.info)?;
    let mut redis = client
        .get_multiplexed_async_connection_with_config(&config)
        .await?;
    let mut forbidden = Vec::new();
    for command in needed(prefix) {
        let done: Result<Value, RedisError> = command.query_async(&mut redis).await;
        match done {
            Err(error) if is_forbidden(&error) => forbidden.push(name_of(&command)),
            Err(error) if error.is_io_error() => return Err(error),
            // There is nothing there that it could do anything to.
            _ => {}
        }
    }
    let told: Result<String, RedisError> = redis::cmd("INFO").query_async(&mut redis).await;
    let told = told.unwrap_or_default();
    let told: HashMap<&str, &str> = told
        .lines()
        .filter_map(|line| line.trim().split_once(':'))
        .collect();
    let text = |name: &str| told.get(name).map_or(String::new(), |it| (*it).to_owned());
    let clock: Result<(i64, i64), RedisError> = redis::cmd("TIME").query_async(&mut redis).await;
    let now = clock.ok().and_then(|(seconds, microseconds)| {
        let nanoseconds = i32::try_from(microseconds * 1000).ok()?;
        Timestamp::new(seconds, nanoseconds).ok()
    });
    // Others report in `redis_version` the Redis that they are compatible with.
    let other = told.get("server_name").filter(|name| **name != "redis");
    let program = other.map_or("redis", |name| *name).to_owned();
    let version = match text(&format!("{program}_version")) {
        version if version.is_empty() => text("redis_version"),
        version => version,
    };
    Ok(ServerCondition {
        address: shown,
        program,
        version,
        role: text("role"),
        maxmemory_policy: text("maxmemory_policy"),
        has_append_only_file: text("aof_enabled") == "1",
        write_failed: text("aof_last_write_status") == "err",
        now,
        forbidden,
    })
}

/// Every command that the sidecar uses, with a key that does not exist, so that none is created.
const NEEDED: &str = "
GET KEY
SET KEY value XX
DEL KEY
EXISTS KEY
EVAL return 1 KEY
SCRIPT LOAD return
EVALSHA e0e1f9fabfc9d4800c877a703b823ac0578ff8db 1 KEY
SCAN 0 COUNT 1
DBSIZE
INFO server
XADD KEY NOMKSTREAM * a b
XLEN KEY
XRANGE KEY - + COUNT 1
XGROUP CREATE KEY doctor 0
XGROUP DELCONSUMER KEY doctor doctor
XREADGROUP GROUP doctor doctor COUNT 1 STREAMS KEY >
XREAD COUNT 1 STREAMS KEY 0
XACK KEY doctor 0-1
XCLAIM KEY doctor doctor 0 0-1
XAUTOCLAIM KEY doctor doctor 0 0
XPENDING KEY doctor
XTRIM KEY MINID 0
XINFO STREAM KEY
XINFO GROUPS KEY
XINFO CONSUMERS KEY doctor";

fn needed(prefix: &KeyPrefix) -> Vec<Cmd> {
    let key = format!("{}doctor", prefix.as_str());
    let commands = NEEDED.trim_start().lines();
    let commands = commands.map(|words| {
        let mut command = Cmd::new();
        for word in words.split(' ') {
            command.arg(if word == "KEY" { &key } else { word });
        }
        command
    });
    commands.collect()
}

/// Returns a command's name in an ACL, including its subcommand.
fn name_of(command: &Cmd) -> String {
    let mut words = command.args_iter().filter_map(|word| match word {
        redis::Arg::Simple(word) => Some(String::from_utf8_lossy(word).to_lowercase()),
        _ => None,
    });
    let name = words.next().unwrap_or_default();
    match (&*name, words.next()) {
        ("script" | "xgroup" | "xinfo", Some(subcommand)) => format!("{name}|{subcommand}"),
        _ => name,
    }
}

fn is_forbidden(error: &RedisError) -> bool {
    error.code() == Some("NOPERM")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_called_as_in_an_acl() {
        let prefix = KeyPrefix::default();
        let names: Vec<String> = needed(&prefix).iter().map(name_of).collect();
        for name in [
            "get",
            "script|load",
            "xgroup|create",
            "xinfo|consumers",
            "evalsha",
        ] {
            assert!(names.contains(&name.to_owned()), "{name}");
        }
    }
}
