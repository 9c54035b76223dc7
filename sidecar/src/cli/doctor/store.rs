//! The database, its schema and its free space; ClickHouse, if it stores visits.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use shortlink_core::clock::{Clock, SystemClock};
use shortlink_store::{self as store, OpenError, ReplicaWatch, Store, StoreOptions};

use super::{Finding, PATIENCE, Verdict, clock};
use crate::config::Config;

/// The free space below which writes fail soon, in MiB.
const LEAST_SPACE: u64 = 100;

/// The free space below which the operator should act, in MiB.
const LITTLE_SPACE: u64 = 1024;

/// The oldest version of ClickHouse that is supported.
const OLDEST_CLICKHOUSE: (u32, u32) = (24, 8);

/// Examines the database and ClickHouse; also returns the store, if it can be used.
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
            findings.extend(replica(&options).await);
            findings.extend(clickhouse(&store).await);
            Some(store)
        }
        Ok(Err(error @ OpenError::Visits(_))) => {
            let found = format!("{:#}", anyhow::Error::new(error));
            let advice = "correct it; `shortlink serve` would not start";
            findings.push(Finding::fail("clickhouse", found, advice));
            None
        }
        Ok(Err(error)) => {
            let found = format!("{:#}", anyhow::Error::new(error));
            let advice = if found.contains("schema") {
                "shortlink migrate (a schema that is ahead needs the newer program)"
            } else {
                "check that it runs and that database.url is right; links in Redis continue to redirect"
            };
            findings.push(Finding::fail("database", found, advice));
            None
        }
        Err(_elapsed) => {
            let found = format!("no answer within {} s", PATIENCE.as_secs());
            let advice = "check that it runs, and that no firewall drops packets to it";
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

/// Findings on the replica of the database, if it has one.
async fn replica(options: &StoreOptions) -> Option<Finding> {
    let max_lag = options.replica.as_ref()?.state.max_lag();
    let watch = ReplicaWatch::new(options).ok()??;
    let begun = Instant::now();
    let finding = loop {
        if let Err(error) = watch.look().await {
            let found = format!("{:#}", anyhow::Error::new(error));
            let advice = "check that it runs and that database.replica_url is right; the primary is read meanwhile";
            break Finding::fail("database-replica", found, advice);
        }
        let lag = watch.state().standing().lag;
        // Once the lag is less than the time since the first look, the replica has replayed what was written later.
        let is_known = lag.is_some_and(|lag| lag < begun.elapsed() / 2);
        if is_known || begun.elapsed() > max_lag.min(PATIENCE) {
            break judge_lag(lag.filter(|_| is_known), begun.elapsed());
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    };
    watch.close().await;
    Some(finding)
}

fn judge_lag(lag: Option<Duration>, waited: Duration) -> Finding {
    let check = "database-replica";
    match lag {
        Some(_) => Finding::ok(
            check,
            "it responds, and has replayed the log of the primary",
        ),
        None => Finding::warn(
            check,
            format!(
                "it is more than {:.0} s behind the primary, or on another timeline",
                waited.as_secs_f64()
            ),
            "check pg_stat_replication on the primary, and the replica's log and disk",
        ),
    }
}

/// Findings on ClickHouse, if visits are there.
async fn clickhouse(store: &Store) -> Option<Finding> {
    let examined = tokio::time::timeout(PATIENCE, store.examine_clickhouse());
    let Ok(examined) = examined.await else {
        let found = format!("ClickHouse has not answered for {} s", PATIENCE.as_secs());
        let advice = "check its log and its load; new visits wait in Redis";
        return Some(Finding::fail("clickhouse", found, advice));
    };
    Some(match examined? {
        Ok(version) => judge_version(&version),
        Err(error) => {
            let advice = "correct it; links work meanwhile, and new visits wait in Redis";
            Finding::fail(
                "clickhouse",
                format!("{:#}", anyhow::Error::new(error)),
                advice,
            )
        }
    })
}

fn judge_version(version: &str) -> Finding {
    let mut numbers = version.split('.').map(|it| it.parse().unwrap_or(0));
    let is_old =
        (numbers.next(), numbers.next()) < (Some(OLDEST_CLICKHOUSE.0), Some(OLDEST_CLICKHOUSE.1));
    let found = format!("ClickHouse {version} answers, its tables are up to date");
    let (year, release) = OLDEST_CLICKHOUSE;
    let advice = format!("install ClickHouse {year}.{release} or newer");
    Finding::new("clickhouse", Verdict::of(is_old, false), found, advice)
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
    fn clickhouse_may_be_old() {
        for (version, verdict) in [
            ("24.7.3.13", Verdict::Warn),
            ("9.9", Verdict::Warn),
            ("24.8.1.1", Verdict::Ok),
            ("25.3", Verdict::Ok),
        ] {
            assert_eq!(judge_version(version).verdict, verdict, "{version}");
        }
    }

    #[test]
    fn a_replica_may_be_behind() {
        let waited = Duration::from_secs(5);
        let well = judge_lag(Some(Duration::from_millis(10)), waited);
        assert_eq!(well.verdict, Verdict::Ok);
        let late = judge_lag(None, waited);
        assert_eq!(late.verdict, Verdict::Warn);
        assert!(late.found.contains("more than 5 s"), "{}", late.found);
    }

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
