//! The rate at which a store creates links: `keep_links DATABASE_URL [TASKS] [SECONDS] [FIND_BY_TARGET]` creates
//! links of the permuted strategy, a thousand at a time, as an otherwise idle service would.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::Context;
use shortlink_core::clock::{Clock, SystemClock};
use shortlink_core::codes::numbering::CodeKey;
use shortlink_core::codes::strategy::CodeOrigin;
use shortlink_core::link::{Destination, Link};
use shortlink_core::ports::MAX_TOGETHER;
use shortlink_core::target::Target;
use shortlink_service::codes::leases::Leases;
use shortlink_service::codes::permuted::PermutedCodes;
use shortlink_service::codes::strategy::{CodeStrategy, DrawRequest};
use shortlink_store::{self as store, KnownServers, Store, StoreOptions};
use tokio::time::Instant;
use vocabulary::{CodeRules, RedirectStatus};

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let url = arguments
        .next()
        .context("usage: keep_links DATABASE_URL [TASKS] [SECONDS] [FIND_BY_TARGET]")?;
    let tasks: u32 = arguments.next().map_or(Ok(4), |text| text.parse())?;
    let seconds: u64 = arguments.next().map_or(Ok(10), |text| text.parse())?;
    let find_by_target = arguments.next().map_or(Ok(false), |text| text.parse())?;
    let options = StoreOptions {
        url: url.into(),
        known_servers: KnownServers::default(),
        replica: None,
        max_connections: 8,
        acquire_timeout: Duration::from_secs(5),
        statement_timeout: Duration::from_secs(30),
        lock_timeout: Duration::from_secs(30),
        find_by_target,
        visits: None,
    };
    store::migrate(&options, &CodeKey::new(rand::random())).await?;
    let store = store::open(&options).await?;
    let rules = CodeRules::default();
    let (clock, holder) = (Arc::new(SystemClock), "bench".to_owned());
    let leases = Leases::new(Arc::clone(&store), rules.clone(), clock, holder);
    let codes = Arc::new(PermutedCodes::new(Arc::new(leases), rules));
    let kept = Arc::new(AtomicU64::new(0));
    let begin = Instant::now();
    let end = begin + Duration::from_secs(seconds);
    let makers: Vec<_> = (0..tasks)
        .map(|_| {
            let (store, codes) = (Arc::clone(&store), Arc::clone(&codes));
            let kept = Arc::clone(&kept);
            tokio::spawn(async move {
                while Instant::now() < end {
                    let some = keep_some(&store, &*codes).await?;
                    kept.fetch_add(some as u64, Ordering::Relaxed);
                }
                anyhow::Ok(())
            })
        })
        .collect();
    for maker in makers {
        maker.await??;
    }
    let kept = kept.load(Ordering::Relaxed);
    let rate = kept as f64 / begin.elapsed().as_secs_f64();
    println!("{kept} links, {rate:.0} links/s");
    store.close().await;
    Ok(())
}

/// Creates a thousand links; returns the number of free codes among them.
async fn keep_some(store: &Store, codes: &dyn CodeStrategy) -> anyhow::Result<usize> {
    let request = DrawRequest {
        length: 7,
        targets: &["https://shop.example.com/spring?recipient=123456&source=sms"; MAX_TOGETHER],
        attempt: 0,
    };
    let now = SystemClock.now();
    let drawn = codes.draw(&request).await?.into_iter();
    let links: Vec<Link> = drawn
        .map(|code| Link {
            code,
            destination: Destination::Target(Target::from_stored(format!(
                "https://shop.example.com/spring?recipient={code}&source=sms"
            ))),
            redirect_status: RedirectStatus::Found,
            forward_query: false,
            plan: None,
            domain: None,
            revision: 1,
            valid_since: None,
            valid_until: None,
            max_visits: None,
            paused_at: None,
            revoked_at: None,
            created_at: now,
            updated_at: now,
            created_by: "bench".to_owned(),
            external_id: None,
            note: None,
            tags: Vec::new(),
            upload: None,
            strategy: Some(CodeOrigin::Permuted),
        })
        .collect();
    let count = links.len();
    let created = store.create_links(links).await?;
    Ok(count - created.taken.len())
}
