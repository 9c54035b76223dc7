//! The database: its presence, its schema, and its free space.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use shortlink_core::clock::{Clock, SystemClock};
use shortlink_store::{self as store, Store, StoreOptions};

use super::{Finding, PATIENCE, Verdict, clock};
use crate::config::Config;

/// The free space below which writes fail soon, in MiB.
const LEAST_SPACE: u64 = 100;

/// The free space below which the operator should act, in MiB.
const LITTLE_SPACE: u64 = 1024;

/// Examines the database; also returns the store, if it can be used.
pub(super) async fn examine(config: &Config) -> (Vec<Finding>, Option<Arc<Store>>) {
    let options = StoreOptions {
        max_connections: 1,
        acquire_timeout: PATIENCE.max(config.database.acquire_timeout),
        ..config.database.clone()
    };
    let mut findings = Vec::new();
    let opened = tokio::time::timeout(PATIENCE + Duration::from_secs(1), store::open(&options));
    let open = match opened.await {
        Ok(Ok(store)) => {
            findings.extend(answering(&options).await);
            Some(store)
        }
        Ok(Err(error)) => {
            let found = format!("{:#}", anyhow::Error::new(error));
            let advice = if found.contains("schema") {
                "shortlink migrate (a schema that is ahead needs the newer program)"
            } else {
                "see that it runs and that database.url is right; links in Redis go on redirecting"
            };
            findings.push(Finding::fail("database", found, advice));
            None
        }
        Err(_elapsed) => {
            let found = format!("no answer within {} s", PATIENCE.as_secs());
            let advice = "see that it runs and that nothing swallows what is sent there";
            findings.push(Finding::fail("database", found, advice));
            None
        }
    };
    if let Some(file) = store::file(&options) {
        findings.extend(room(&file));
    }
    (findings, open)
}

/// Findings on a database that answers and has the right schema.
async fn answering(options: &StoreOptions) -> Vec<Finding> {
    if let Some(file) = store::file(options) {
        let found = format!("{}, its schema is up to date", file.display());
        return vec![Finding::ok("database", found)];
    }
    let state = store::server(options).await.ok().flatten();
    let database = match state {
        Some(state) if state.is_read_only => Finding::fail(
            "database",
            "it is read-only (default_transaction_read_only): no link is created and no visit stored",
            "turn that off for the server, the database or the user",
        ),
        _ => Finding::ok("database", "it answers, its schema is up to date"),
    };
    let of_clock = state.map(|state| {
        let ours = SystemClock.now();
        clock("database-clock", "PostgreSQL's clock", state.clock, ours)
    });
    [Some(database), of_clock].into_iter().flatten().collect()
}

/// The free space for the file.
fn room(file: &Path) -> Option<Finding> {
    let directory = std::path::absolute(file).ok()?;
    let directory = directory.parent()?;
    let status = nix::sys::statvfs::statvfs(directory).ok()?;
    let bytes = status.blocks_available() * status.fragment_size();
    let free = bytes >> 20;
    Some(judge_room(free, directory))
}

fn judge_room(free: u64, directory: &Path) -> Finding {
    let found = format!("{free} MiB free in {}", directory.display());
    let advice = "free space: without it no link is created and no visit stored";
    let verdict = Verdict::of(free < LITTLE_SPACE, free < LEAST_SPACE);
    Finding::new("database-space", verdict, found, advice)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_may_be_little_or_none() {
        for (free, verdict) in [
            (0, Verdict::Fail),
            (99, Verdict::Fail),
            (100, Verdict::Warn),
            (1024, Verdict::Ok),
        ] {
            assert_eq!(judge_room(free, Path::new("/")).verdict, verdict, "{free}");
        }
    }
}
