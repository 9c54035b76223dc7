//! `shortlink make-sample-links`: links by the million, for benchmarks and tests. They are only
//! in SQL, as if Redis had lost them.

use std::sync::Arc;

use anyhow::Context;
use jiff::{SignedDuration, Timestamp};
use shortlink_core::clock::{Clock, SystemClock};
use shortlink_core::link::{Change, Destination, Link, Second};
use shortlink_core::ports::MAX_TOGETHER;
use shortlink_core::target::Target;
use shortlink_service::codes::leases::Leases;
use shortlink_service::codes::lengths::Lengths;
use shortlink_service::codes::permuted::PermutedCodes;
use shortlink_service::codes::strategy::{CodeStrategy, DrawRequest};
use vocabulary::BodyLengths;

use super::workbench::Workbench;
use crate::config::Config;

/// Creates a number of links, and prints their codes on request.
pub(super) async fn run(
    config: &Config,
    count: usize,
    print_codes: bool,
    expired_days_ago: Option<u16>,
) -> anyhow::Result<()> {
    let expired_at = expired_days_ago
        .map(|days| SystemClock.now() - SignedDuration::from_hours(24 * i64::from(days)));
    let make = async |bench: &Workbench| make(bench, config, count, print_codes, expired_at).await;
    Workbench::with(config, make).await
}

async fn make(
    bench: &Workbench,
    config: &Config,
    count: usize,
    print_codes: bool,
    expired_at: Option<Timestamp>,
) -> anyhow::Result<()> {
    let rules = config.codes.rules.clone();
    let (store, clock) = (Arc::clone(&bench.store), Arc::clone(&bench.clock));
    let leases = Leases::new(store, rules.clone(), clock, bench.claims.holder.clone());
    let leases = Arc::new(leases);
    let strategy = PermutedCodes::new(Arc::clone(&leases), rules.clone());
    let lengths = Lengths::new(Arc::clone(&leases), rules, config.codes.one_in);
    let (shortest, longest) = config.codes.policy.lengths;
    let bounds = BodyLengths::new(shortest, longest).unwrap_or_default();
    let mut made = 0;
    while made < count {
        let some = (count - made).min(MAX_TOGETHER);
        let reserved = lengths.reserve(bounds, some as u64).await?;
        let reserved = reserved.context("no codes are left")?;
        let targets = vec![""; reserved.codes as usize];
        let request = DrawRequest {
            length: reserved.length,
            targets: &targets,
            attempt: 0,
        };
        let now = expired_at.unwrap_or_else(|| bench.clock.now());
        let codes = strategy.draw(&request).await?;
        let links: Vec<Link> = codes
            .iter()
            .map(|&code| {
                let target = Target::from_stored(format!(
                    "https://www.example.com/campaign/spring?recipient={code}&source=sms"
                ));
                let settings = Change {
                    valid_until: Some(expired_at.and_then(Second::at)),
                    ..Change::default()
                };
                let destination = Destination::Target(target);
                Link::new(code, destination, settings, "sample".to_owned(), now)
            })
            .collect();
        let created = bench.store.create_links(links).await?;
        // No sidecar is to publish them.
        bench.store.settle_new(vec![created.receipt]).await?;
        if print_codes {
            let text: String = codes.iter().map(|code| format!("{code}\n")).collect();
            shortlink_client::output::print(&text)?;
        }
        made += codes.len();
    }
    leases.give_back().await;
    Ok(())
}
