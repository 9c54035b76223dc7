use std::net::IpAddr;

use proptest::prelude::*;

use vocabulary::visit::evidence::Request;

use super::agent::DeviceKind;
use super::class::{Class, Words};
use super::place::PlaceSource;
use super::stored::{StoredAgent, StoredVisit};
use super::visitor::{DayKey, day_of};
use super::*;

/// All clients are in Mimecast's network, in a city if the address is of 203.0.113.0/24, or in a network of servers if
/// it is of 198.51.100.0/24.
struct TestPlaces;

impl Places for TestPlaces {
    fn place(&self, address: IpAddr) -> Place {
        match address {
            IpAddr::V4(address) if address.octets()[..3] == [203, 0, 113] => Place {
                country: Some("NZ".to_owned()),
                // The whole address is looked up, however little of it is stored.
                city: Some(format!("City {}", address.octets()[3])),
                source: PlaceSource::MaxMind,
                ..Place::default()
            },
            IpAddr::V4(address) if address.octets()[..3] == [198, 51, 100] => Place {
                isp: Some("Example Servers".to_owned()),
                asn: Some(16_509),
                ..Place::default()
            },
            _ => Place {
                isp: Some("Mimecast".to_owned()),
                ..Place::default()
            },
        }
    }
}

struct TestAgents;

impl Agents for TestAgents {
    fn agent(&self, user_agent: &str) -> Arc<Agent> {
        Arc::new(Agent {
            app: agent::app(user_agent),
            words: Words::of(user_agent),
            ..Agent::default()
        })
    }
}

fn enrichment(address: AddressPolicy) -> Enrichment {
    Enrichment::new(Arc::new(TestPlaces), Arc::new(TestAgents), address)
}

const NOON: u64 = 1_780_315_200_000; // 2026-06-01T12:00:00Z

fn keys() -> LiveKeys {
    let day = day_of("2026-06-01T00:00:00Z".parse().expect("a moment"));
    [(day, DayKey::new([7; 32]))].into_iter().collect()
}

fn event<'a>() -> VisitEvent<'a> {
    VisitEvent {
        id: VisitId {
            origin: 1,
            sequence: 2,
        },
        time_ms: NOON,
        status: 302,
        method: VisitMethod::Get,
        code: b"aB3",
        host: b"Go.Example",
        client: b"203.0.113.77",
        user_agent: b"Mozilla/5.0 (iPhone) AppleWebKit/605.1.15 Mobile Instagram 336.0",
        referrer: b"https://L.Instagram.com/?u=x",
        accept_language: b"de-ch,de;q=0.9",
        purpose: b"",
        evidence: VisitEvidence::UNKNOWN,
        click: None,
        variant: b"",
    }
}

#[test]
fn an_event_becomes_a_visit() {
    let enrichment = enrichment(AddressPolicy::Truncated);
    let visit = enrichment.visit(&event(), &keys()).expect("a visit");
    assert_eq!(visit.id.sequence, 2);
    assert_eq!(visit.at.to_string(), "2026-06-01T12:00:00Z");
    assert_eq!(visit.code, "aB3");
    assert_eq!(visit.host, "go.example");
    assert_eq!(visit.client, Some([203, 0, 113, 0].into()));
    assert!(visit.visitor.is_some());
    assert_eq!(visit.referrer, "https://L.Instagram.com/?u=x");
    assert_eq!(visit.referrer_host.as_deref(), Some("l.instagram.com"));
    assert_eq!(visit.language.as_deref(), Some("de-CH"));
    assert_eq!(visit.status, 302);
    assert_eq!(visit.place.city.as_deref(), Some("City 77"));
    assert_eq!(visit.agent.app, Some("Instagram"));
    assert_eq!(visit.classification.class, Class::Human);
    assert_eq!(visit.classification.reason, "app");
}

#[test]
fn visits_of_one_visitor_have_one_id_whatever_is_kept_of_the_address() {
    let id = |policy, event: &VisitEvent<'_>| {
        let visit = enrichment(policy).visit(event, &keys());
        visit.expect("a visit").visitor.expect("a visitor")
    };
    let one = id(AddressPolicy::Truncated, &event());
    assert_eq!(id(AddressPolicy::None, &event()), one);
    let neighbour = VisitEvent {
        client: b"203.0.113.78",
        ..event()
    };
    assert_ne!(id(AddressPolicy::Truncated, &neighbour), one);
    let mapped = VisitEvent {
        client: b"::ffff:203.0.113.77",
        ..event()
    };
    assert_eq!(id(AddressPolicy::Truncated, &mapped), one);
    let visit = enrichment(AddressPolicy::None).visit(&event(), &keys());
    assert_eq!(visit.expect("a visit").client, None);
}

#[test]
fn an_event_without_a_client_is_a_visit_of_nobody_from_nowhere() {
    let event = VisitEvent {
        client: b"unix:",
        user_agent: b"",
        referrer: b"",
        accept_language: b"",
        ..event()
    };
    let visit = enrichment(AddressPolicy::Whole).visit(&event, &keys());
    let visit = visit.expect("a visit");
    assert_eq!((visit.client, visit.visitor), (None, None));
    assert_eq!(visit.place, Place::default());
    assert_eq!(visit.place.source.name(), "none");
    assert_eq!((visit.referrer_host, visit.language), (None, None));
    assert_eq!(visit.classification.reason, "no-agent");
}

#[test]
fn the_network_counts_again_when_a_visit_is_classified_again() {
    let event = VisitEvent {
        client: b"192.0.2.1",
        user_agent: b"Mozilla/5.0 (X11; Linux x86_64; rv:127.0) Gecko/20100101 Firefox/127.0",
        ..event()
    };
    let visit = enrichment(AddressPolicy::None).visit(&event, &keys());
    let visit = visit.expect("a visit");
    assert_eq!(visit.classification.reason, "mimecast");
    assert_eq!(stored(&visit).reclassified(&TestAgents), None);
    let without = StoredVisit {
        isp: None,
        ..stored(&visit)
    };
    let verdict = without.reclassified(&TestAgents).expect("another verdict");
    assert_eq!(verdict.classification.reason, "browser");
}

/// A scanner of messages follows the links of 2,000 recipients from servers, as a program with the text of a browser.
#[test]
fn a_sweep_from_servers_is_recognised_at_the_first_judgement() {
    let enrichment = enrichment(AddressPolicy::Truncated);
    let class = |number: u64, client: String, request: &Request<'_>| {
        let code = format!("r{number}");
        let visit = enrichment.visit(
            &VisitEvent {
                time_ms: NOON + number * 5,
                code: code.as_bytes(),
                client: client.as_bytes(),
                user_agent: b"Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 \
                    (KHTML, like Gecko) Chrome/126.0.0.0 Safari/537.36",
                evidence: VisitEvidence::of(request),
                click: None,
                variant: b"",
                ..event()
            },
            &keys(),
        );
        let visit = visit.expect("a visit");
        assert_eq!(stored(&visit).reclassified(&TestAgents), None);
        (visit.classification.class, visit.classification.reason)
    };
    let program = Request {
        accept: Some(b"*/*"),
        is_tls: true,
        ..Request::default()
    };
    let person = Request {
        mode: Some(b"navigate"),
        destination: Some(b"document"),
        accept: Some(b"text/html,*/*;q=0.8"),
        ..program
    };
    for number in 0..2000 {
        let of = |network: &str| format!("{network}.{}", number % 4);
        let servers = of("198.51.100");
        let scanner = (Class::Scanner, "pretender");
        assert_eq!(class(number, servers.clone(), &program), scanner);
        // Recipients whose tunnel ends there, and those behind a proxy that removes headers.
        let human = (Class::Human, "browser");
        assert_eq!(class(number, servers, &person), human);
        assert_eq!(class(number, of("203.0.113"), &program), human);
    }
}

#[test]
fn a_variant_is_kept_if_a_rule_can_have_it() {
    for (bytes, kept) in [
        (&b"b-1_X"[..], Some("b-1_X")),
        (b"", None),
        (b"(other)", None),
        (b"\xff", None),
        (&[b'a'; 32], Some("aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa")),
        (&[b'a'; 33], None),
    ] {
        assert_eq!(variant(bytes).as_deref(), kept, "{bytes:?}");
    }
}

/// A visit as it is read after it was stored.
fn stored(visit: &Visit) -> StoredVisit {
    StoredVisit {
        number: 1,
        at: visit.at,
        code: visit.code.clone(),
        campaign: 0,
        host: visit.host.clone(),
        visitor: visit.visitor,
        method: visit.method,
        status: visit.status,
        purpose: visit.purpose.clone(),
        evidence: visit.evidence,
        user_agent: visit.user_agent.clone(),
        isp: visit.place.isp.clone(),
        asn: visit.place.asn,
        country: visit.place.country.clone(),
        referrer_host: visit.referrer_host.clone(),
        variant: visit.variant.clone(),
        class: visit.classification.class,
        reason: visit.classification.reason.to_owned(),
        ruleset: visit.classification.ruleset,
        agent: StoredAgent {
            id: 1,
            browser: visit.agent.browser.clone(),
            os: visit.agent.os.clone(),
            device: visit.agent.device.kind.name().to_owned(),
            app: visit.agent.app.map(str::to_owned),
        },
    }
}

#[test]
fn a_time_that_is_none_is_refused() {
    for time_ms in [u64::MAX, i64::MAX.unsigned_abs(), 253_402_400_000_000] {
        let event = VisitEvent { time_ms, ..event() };
        let visit = enrichment(AddressPolicy::Whole).visit(&event, &keys());
        assert_eq!(visit, Err(VisitFault::Time(time_ms)));
    }
}

#[test]
fn devices_and_sources_have_names() {
    for name in ["phone", "tablet", "desktop", "tv", "other"] {
        assert_eq!(DeviceKind::by_name(name).map(DeviceKind::name), Some(name));
    }
    for name in ["none", "maxmind", "ip2region"] {
        assert_eq!(
            PlaceSource::by_name(name).map(PlaceSource::name),
            Some(name)
        );
    }
}

proptest! {
    #[test]
    fn any_event_is_a_visit_within_the_limits_or_refused(
        time_ms in any::<u64>(),
        status in any::<u16>(),
        evidence in any::<u64>(),
        texts in prop::array::uniform7(prop::collection::vec(any::<u8>(), 0..600)),
    ) {
        let event = VisitEvent {
            id: VisitId { origin: 0, sequence: 0 },
            time_ms,
            status,
            method: VisitMethod::Get,
            code: &texts[0],
            host: &texts[1],
            client: &texts[2],
            user_agent: &texts[3],
            referrer: &texts[4],
            accept_language: &texts[5],
            purpose: &texts[6],
            evidence: VisitEvidence::from_number(evidence),
            click: None,
            variant: b"",
        };
        let enrichment = enrichment(AddressPolicy::Truncated);
        let near = VisitEvent { time_ms: NOON, ..event };
        for event in [event, near] {
            let Ok(visit) = enrichment.visit(&event, &keys()) else {
                continue;
            };
            let kept = [
                &visit.code,
                &visit.host,
                &visit.user_agent,
                &visit.referrer,
                &visit.purpose,
            ];
            for (text, place) in kept.into_iter().zip([0, 1, 3, 4, 6]) {
                prop_assert!(text.len() <= TEXT_LIMITS[place]);
            }
            prop_assert_eq!(stored(&visit).reclassified(&TestAgents), None);
        }
    }
}
