//! Measures how fast visits are enriched and stored: `ingest <url> <visits> <links>`, on a database
//! that is migrated and empty.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context;
use rand::rngs::StdRng;
use rand::{Rng, RngExt, SeedableRng};
use shortlink_sidecar::clock::{Clock, SystemClock};
use shortlink_sidecar::domain::ports::MAX_VISITS_TOGETHER;
use shortlink_sidecar::domain::visit::Enrichment;
use shortlink_sidecar::domain::visit::address::AddressPolicy;
use shortlink_sidecar::domain::visit::visitor::KeyRing;
use shortlink_sidecar::enrich::agents::AgentReader;
use shortlink_sidecar::enrich::geo::{Geo, GeoFiles};
use shortlink_sidecar::store::{self, StoreOptions};
use vocabulary::visit::{VisitEvent, VisitFrames, VisitId, VisitMethod};

/// User agents as they come, but for their versions.
const AGENTS: [&str; 4] = [
    "Mozilla/5.0 (iPhone; CPU iPhone OS 17_{} like Mac OS X) AppleWebKit/605.1.15 (KHTML, like \
     Gecko) Version/17.2 Mobile/15E148 Safari/604.1",
    "Mozilla/5.0 (Linux; Android 14; SM-S{}B) AppleWebKit/537.36 (KHTML, like Gecko) \
     Chrome/126.0.0.0 Mobile Safari/537.36",
    "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) \
     Chrome/{}.0.0.0 Safari/537.36",
    "WhatsApp/2.{}.20.0 A",
];

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let mut next = || arguments.next().context("ingest <url> <visits> <links>");
    let url = next()?;
    let visits: u64 = next()?.parse()?;
    let links: u64 = next()?.parse()?;
    let options = StoreOptions {
        url: url.as_str().into(),
        max_connections: 4,
        acquire_timeout: Duration::from_secs(5),
        statement_timeout: Duration::from_secs(30),
        lock_timeout: Duration::from_secs(30),
    };
    let store = store::open(&options).await?;
    let clock = SystemClock;
    let agents = AgentReader::new(10_000)?;
    let geo = Geo::open(GeoFiles {
        geo_database: None,
        asn_database: None,
        ip2region: Vec::new(),
        language: "en".to_owned(),
    })?;
    let enrichment = Enrichment::new(Arc::new(geo), Arc::new(agents), AddressPolicy::Truncated);
    let keys = KeyRing::new(Arc::clone(&store) as _);
    let mut rng = StdRng::seed_from_u64(7);
    let begun = Instant::now();
    let cpu = cpu_time()?;
    let mut sequence = 0;
    while sequence < visits {
        let count = (visits - sequence).min(MAX_VISITS_TOGETHER as u64);
        let frames = frames(
            sequence,
            count,
            links,
            clock.now().as_millisecond(),
            &mut rng,
        );
        let live = keys.live(clock.now(), &mut rng).await?;
        let read: Result<Vec<_>, _> = VisitFrames::new(&frames)
            .filter_map(Result::ok)
            .map(|event| enrichment.visit(&event, &live))
            .collect();
        let kept = store.keep_visits(read?, clock.now()).await?;
        anyhow::ensure!(kept.new.len() as u64 == count, "some were there before");
        sequence += count;
    }
    let seconds = begun.elapsed().as_secs_f64();
    let cpu = (cpu_time()? - cpu).as_secs_f64();
    println!(
        "{visits} visits of {links} links: {:.0}/s, {:.1} us of CPU each",
        visits as f64 / seconds,
        cpu * 1e6 / visits as f64
    );
    store.close().await;
    Ok(())
}

fn frames(first: u64, count: u64, links: u64, now_ms: i64, rng: &mut StdRng) -> Vec<u8> {
    let mut frames = Vec::new();
    for sequence in first..first + count {
        let code = format!("{:08}", rng.random_range(0..links));
        let agent = AGENTS[rng.random_range(0..AGENTS.len())];
        let agent = agent.replace("{}", &rng.random_range(100..1000).to_string());
        let client = Ipv4Addr::from_bits(rng.next_u32()).to_string();
        let event = VisitEvent {
            id: VisitId {
                origin: 1,
                sequence,
            },
            time_ms: now_ms.unsigned_abs(),
            status: 302,
            method: VisitMethod::Get,
            code: code.as_bytes(),
            host: b"s.example.com",
            client: client.as_bytes(),
            user_agent: agent.as_bytes(),
            referrer: b"",
            accept_language: b"de-AT,de;q=0.9",
            purpose: b"",
        };
        event.write(&mut frames);
    }
    frames
}

/// The CPU time of this process, by what the kernel says.
fn cpu_time() -> anyhow::Result<Duration> {
    let stat = std::fs::read_to_string("/proc/self/stat")?;
    let fields: Vec<&str> = stat
        .rsplit_once(')')
        .context("a process")?
        .1
        .split_whitespace()
        .collect();
    let ticks: u64 = fields[11].parse::<u64>()? + fields[12].parse::<u64>()?;
    Ok(Duration::from_millis(ticks * 10))
}
