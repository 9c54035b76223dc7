//! Puts visits into a stream as the edge does: `taps <Redis' URL> <key> <visits> <file of codes>
//! <days> [<visits per second>]`. With 0 days, all visits are of now, and of any code. Otherwise they are spread
//! over the days that end now, and nine of ten are of the codes that were sent at that time: the file is in the order of
//! creation.

use std::net::Ipv4Addr;
use std::time::Duration;

use anyhow::{Context, ensure};
use rand::rngs::StdRng;
use rand::{Rng, RngExt, SeedableRng};
use redis::aio::MultiplexedConnection;
use shortlink_core::clock::{Clock, SystemClock};
use vocabulary::visit::evidence::VisitEvidence;
use vocabulary::visit::{BATCH_FIELD, VisitEvent, VisitId, VisitMethod};

/// Typical user agents, except for their versions.
const AGENTS: [&str; 4] = [
    "Mozilla/5.0 (iPhone; CPU iPhone OS 17_{} like Mac OS X) AppleWebKit/605.1.15 (KHTML, like \
     Gecko) Version/17.2 Mobile/15E148 Safari/604.1",
    "Mozilla/5.0 (Linux; Android 14; SM-S{}B) AppleWebKit/537.36 (KHTML, like Gecko) \
     Chrome/126.0.0.0 Mobile Safari/537.36",
    "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) \
     Chrome/{}.0.0.0 Safari/537.36",
    "WhatsApp/2.{}.20.0 A",
];

/// The most visits that the edge puts into a batch.
const IN_BATCH: u64 = 256;

/// The number of batches that are sent together.
const TOGETHER: u64 = 64;

/// The most batches in the stream, which bounds the memory of Redis.
const MOST_WAITING: u64 = 8192;

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let usage = "taps <Redis' URL> <key> <visits> <file of codes> <days> [<visits per second>]";
    let mut arguments = std::env::args().skip(1);
    let mut next = || arguments.next().context(usage);
    let (url, key) = (next()?, next()?);
    let visits: u64 = next()?.parse()?;
    let codes = std::fs::read_to_string(next()?)?;
    let days: u64 = next()?.parse()?;
    let per_second = next().ok().map(|it| it.parse()).transpose()?;
    let codes: Vec<&str> = codes.lines().collect();
    ensure!(!codes.is_empty(), "there are no codes");
    let mut redis = redis::Client::open(url)?
        .get_multiplexed_async_connection()
        .await?;
    let now_ms = SystemClock.now().as_millisecond().unsigned_abs();
    let begun = tokio::time::Instant::now();
    let mut taps = Taps {
        codes,
        visits,
        begin_ms: now_ms - days * 86_400_000,
        span_ms: days * 86_400_000,
        rng: StdRng::seed_from_u64(7),
        origin: now_ms,
    };
    let mut sequence = 0;
    while sequence < visits {
        wait_for_room(&mut redis, &key).await?;
        if let Some(per_second) = per_second {
            let due = Duration::from_secs_f64(sequence as f64 / f64::from(per_second));
            tokio::time::sleep_until(begun + due).await;
            let passed_ms = u64::try_from(begun.elapsed().as_millis())?;
            taps.begin_ms = now_ms + passed_ms;
        }
        let mut together = redis::pipe();
        // Nginx sends some batches a second.
        let batches = per_second.map_or(TOGETHER, |_: u32| 1);
        for _ in 0..batches {
            let count = (visits - sequence).min(IN_BATCH);
            if count == 0 {
                break;
            }
            let mut frames = Vec::new();
            for _ in 0..count {
                taps.write(sequence, &mut frames);
                sequence += 1;
            }
            let mut command = redis::cmd("XADD");
            command.arg(&key).arg("*").arg(BATCH_FIELD).arg(frames);
            together.add_command(command).ignore();
        }
        together.query_async::<()>(&mut redis).await?;
    }
    Ok(())
}

async fn wait_for_room(redis: &mut MultiplexedConnection, key: &str) -> anyhow::Result<()> {
    loop {
        let waiting: u64 = redis::cmd("XLEN").arg(key).query_async(redis).await?;
        if waiting < MOST_WAITING {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

struct Taps<'c> {
    codes: Vec<&'c str>,
    visits: u64,
    begin_ms: u64,
    span_ms: u64,
    rng: StdRng,
    /// Another one in each run, whose visits would otherwise be those of the run before.
    origin: u64,
}

impl Taps<'_> {
    fn write(&mut self, sequence: u64, frames: &mut Vec<u8>) {
        let rng = &mut self.rng;
        let done = sequence as f64 / self.visits as f64;
        let count = self.codes.len();
        let place = if self.span_ms > 0 && rng.random_bool(0.9) {
            // A thirtieth of all was sent lately.
            let sent = (count / 30).max(1);
            let first = (done * (count - sent) as f64) as usize;
            first + rng.random_range(0..sent)
        } else {
            rng.random_range(0..count)
        };
        let agent = AGENTS[rng.random_range(0..AGENTS.len())];
        let agent = agent.replace("{}", &rng.random_range(100..1000).to_string());
        let client = Ipv4Addr::from_bits(rng.next_u32()).to_string();
        let host: &[u8] = [b"s.example.com".as_slice(), b"go.example.net"][rng.random_range(0..2)];
        let event = VisitEvent {
            id: VisitId {
                origin: self.origin,
                sequence,
            },
            time_ms: self.begin_ms + (done * self.span_ms as f64) as u64,
            status: 302,
            method: VisitMethod::Get,
            code: self.codes[place].as_bytes(),
            host,
            client: client.as_bytes(),
            user_agent: agent.as_bytes(),
            referrer: b"",
            accept_language: b"de-AT,de;q=0.9",
            purpose: b"",
            evidence: VisitEvidence::UNKNOWN,
            click: None,
            variant: b"",
        };
        event.write(frames);
    }
}
