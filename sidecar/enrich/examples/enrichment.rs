//! Measures the rate at which one core derives visits from events, and the cost of the parts:
//! `cargo run --release -p shortlink-enrich --example enrichment`.
//!
//! User agents are drawn by Zipf's law from 50,000 that vary the versions of the golden ones;
//! clients are drawn evenly from databases of 20,000 networks. Time is the processor's, as the
//! kernel accounts it to the thread, so that other load on the machine does not count.

use std::error::Error;
use std::fs;
use std::hint::black_box;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use maxminddb_writer::Database;
use maxminddb_writer::metadata::IpVersion;
use maxminddb_writer::paths::IpAddrWithMask;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use shortlink_core::visit::Enrichment;
use shortlink_core::visit::address::AddressPolicy;
use shortlink_core::visit::agent::Agents;
use shortlink_core::visit::class::networks::Network;
use shortlink_core::visit::class::{Evidence, classify};
use shortlink_core::visit::place::Places;
use shortlink_core::visit::visitor::{DayKey, LiveKeys, day_of};
use shortlink_enrich::agents::AgentReader;
use shortlink_enrich::geo::{Geo, GeoFiles};
use vocabulary::visit::evidence::VisitEvidence;
use vocabulary::visit::{VisitEvent, VisitId, VisitMethod};

const AGENTS: usize = 50_000;
const NETWORKS: u32 = 20_000;
const EVENTS: usize = 300_000;
const GOLDEN: &str = include_str!("../../golden/agents.tsv");
const NOON: u64 = 1_780_315_200_000;

/// The processor time of the thread in seconds.
fn processor() -> Result<f64, Box<dyn Error>> {
    let text = fs::read_to_string("/proc/thread-self/schedstat")?;
    let nanoseconds: u64 = text.split(' ').next().unwrap_or_default().parse()?;
    Ok(nanoseconds as f64 / 1e9)
}

/// The resident memory of the process in MiB.
fn memory() -> Result<u64, Box<dyn Error>> {
    let text = fs::read_to_string("/proc/self/status")?;
    let line = text.lines().find(|line| line.starts_with("VmRSS:"));
    let kilobytes = line.and_then(|line| line.split_whitespace().nth(1));
    Ok(kilobytes.unwrap_or_default().parse::<u64>()? / 1024)
}

fn measure(
    name: &str,
    count: usize,
    mut work: impl FnMut(usize) -> Result<(), Box<dyn Error>>,
) -> Result<(), Box<dyn Error>> {
    let before = processor()?;
    for place in 0..count {
        work(place)?;
    }
    let seconds = processor()? - before;
    let each = seconds / count as f64;
    println!("{name:<48} {:>10.0}/s {:>8.2} us", 1.0 / each, each * 1e6);
    Ok(())
}

fn agents(rng: &mut StdRng) -> Vec<String> {
    let golden: Vec<&str> = GOLDEN
        .lines()
        .filter_map(|line| line.split('\t').nth(6))
        .collect();
    let other = |agent: &str, rng: &mut StdRng| -> String {
        // The last digits of versions differ most.
        let change = |character: char| match character {
            '0'..='9' if rng.random_range(0..4) == 0 => rng.random_range('0'..='9'),
            other => other,
        };
        agent.chars().map(change).collect()
    };
    (0..AGENTS)
        .map(|place| match golden.get(place) {
            Some(agent) => (*agent).to_owned(),
            None => other(golden[place % golden.len()], rng),
        })
        .collect()
}

/// A place by Zipf's law: the inverse of its integral is good enough.
fn zipf(rng: &mut StdRng) -> usize {
    let drawn: f64 = rng.random();
    ((AGENTS as f64).powf(drawn) as usize - 1).min(AGENTS - 1)
}

#[derive(serde::Serialize)]
struct Names {
    en: String,
}

#[derive(serde::Serialize)]
struct Named {
    #[serde(skip_serializing_if = "Option::is_none")]
    iso_code: Option<&'static str>,
    names: Names,
}

#[derive(serde::Serialize)]
struct City {
    city: Named,
    country: Named,
    subdivisions: Vec<Named>,
}

#[derive(serde::Serialize)]
struct Asn {
    autonomous_system_number: u32,
    autonomous_system_organization: String,
}

fn database<T: serde::Serialize>(entry: impl Fn(u32) -> T) -> Result<Vec<u8>, Box<dyn Error>> {
    let mut database = Database::default();
    database.metadata.ip_version = IpVersion::V4;
    database.metadata.binary_format_major_version = 2;
    for network in 0..NETWORKS {
        let data = database
            .insert_value(entry(network))
            .map_err(|error| error.to_string())?;
        let first = IpAddr::V4(Ipv4Addr::from_bits((network + 0x0001_0000) << 8));
        database.insert_node(IpAddrWithMask::new(first, 24), data);
    }
    let mut bytes = Vec::new();
    database
        .write_to(&mut bytes)
        .map_err(|error| error.to_string())?;
    Ok(bytes)
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut rng = StdRng::seed_from_u64(1);
    let named = |name: String, iso_code| Named {
        iso_code,
        names: Names { en: name },
    };
    let folder = tempfile::tempdir()?;
    let (city, asn) = (folder.path().join("city"), folder.path().join("asn"));
    let cities = database(|network| City {
        city: named(format!("City {network}"), None),
        country: named("Country".to_owned(), Some("DE")),
        subdivisions: vec![named(format!("Province {}", network % 50), Some("X"))],
    })?;
    fs::write(&city, cities)?;
    let networks = database(|network| Asn {
        autonomous_system_number: network,
        autonomous_system_organization: format!("Example Telecom {network}"),
    })?;
    fs::write(&asn, networks)?;
    let geo = Arc::new(Geo::open(GeoFiles {
        geo_database: Some(city),
        asn_database: Some(asn),
        ip2region: Vec::new(),
        language: "en".to_owned(),
    })?);

    let (before, held) = (processor()?, memory()?);
    let reader = Arc::new(AgentReader::new(10_000)?);
    println!(
        "the rules for user agents took {:.2} s to compile and take {} MiB",
        processor()? - before,
        memory()? - held
    );

    let agents = agents(&mut rng);
    let clients: Vec<String> = (0..EVENTS)
        .map(|_| {
            let host = (rng.random_range(0..NETWORKS) + 0x0001_0000) << 8;
            Ipv4Addr::from_bits(host | rng.random_range(1..255)).to_string()
        })
        .collect();
    let drawn: Vec<usize> = (0..EVENTS).map(|_| zipf(&mut rng)).collect();
    let keys: LiveKeys = [(
        day_of("2026-06-01T00:00:00Z".parse()?),
        DayKey::random(&mut rng),
    )]
    .into_iter()
    .collect();
    let enrichment = |agents: &Arc<AgentReader>| {
        Enrichment::new(geo.clone(), agents.clone(), AddressPolicy::Truncated)
    };
    let event = |place: usize, agent: &'static str| VisitEvent {
        id: VisitId {
            origin: 1,
            sequence: place as u64,
        },
        time_ms: NOON,
        status: 302,
        method: VisitMethod::Get,
        code: b"aB3dE7x",
        host: b"go.example",
        client: b"",
        user_agent: agent.as_bytes(),
        referrer: b"https://www.example.com/some/page?with=query",
        accept_language: b"de-CH,de;q=0.9,en;q=0.8",
        purpose: b"",
        evidence: VisitEvidence::UNKNOWN,
        click: None,
        variant: b"",
    };
    let agents: &'static [String] = Box::leak(agents.into_boxed_slice());
    let visit = |enrichment: &Enrichment, place: usize, agent: usize| {
        let event = VisitEvent {
            client: clients[place].as_bytes(),
            ..event(place, &agents[agent])
        };
        let visit = enrichment.visit(&event, &keys)?;
        black_box(visit);
        Ok(())
    };
    let warm = enrichment(&reader);
    measure(
        "visits, agents by Zipf's law, nothing remembered",
        EVENTS,
        |place| visit(&warm, place, drawn[place]),
    )?;
    measure("visits, agents by Zipf's law", EVENTS, |place| {
        visit(&warm, place, drawn[place])
    })?;
    let forgetful = enrichment(&Arc::new(AgentReader::new(1)?));
    measure("visits, every agent another", AGENTS, |place| {
        visit(&forgetful, place, place)
    })?;
    measure("an agent that is remembered", EVENTS, |place| {
        black_box(reader.agent(&agents[drawn[place] % 1000]));
        Ok(())
    })?;
    measure("a place", EVENTS, |place| {
        let address: IpAddr = clients[place].parse()?;
        black_box(geo.place(address));
        Ok(())
    })?;
    measure("a classification", EVENTS, |place| {
        black_box(classify(&Evidence {
            method: VisitMethod::Get,
            purpose: "",
            observed: VisitEvidence::UNKNOWN,
            words: reader.agent(&agents[drawn[place] % 1000]).words,
            listed: None,
            network: Network {
                name: Some("Example Telecom"),
                asn: Some(64_496),
            },
        }));
        Ok(())
    })?;
    let now = "2026-06-01T12:00:00Z".parse()?;
    measure("a visitor's id", EVENTS, |place| {
        let address = IpAddr::V4(Ipv4Addr::from_bits(place as u32));
        black_box(keys.visitor(now, address, agents[drawn[place]].as_bytes()));
        Ok(())
    })?;
    println!("{} MiB are held in the end", memory()?);
    Ok(())
}
