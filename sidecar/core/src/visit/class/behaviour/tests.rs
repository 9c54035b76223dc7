use proptest::prelude::*;

use super::*;

fn visit(number: i64, at_ms: i64) -> Watched {
    Watched {
        number,
        at_ms,
        code: format!("code{number}").into(),
        created_ms: Some(-1_000_000),
        visitor: Some(VisitorId([1; 16])),
        is_truncated: false,
        client: Some("192.0.2.0".into()),
        agent: 1,
        is_desktop: false,
        is_hosting: false,
        is_pretended: false,
        is_judged: false,
    }
}

/// Visits at even distances, changed by `change`.
fn series(count: i64, every_ms: i64, change: impl Fn(&mut Watched)) -> Vec<Watched> {
    let visits = (0..count).map(|number| {
        let mut visit = visit(number, number * every_ms);
        change(&mut visit);
        visit
    });
    visits.collect()
}

fn reasons(visits: &[Watched]) -> (usize, Option<&'static str>) {
    let found = judge(visits);
    (found.len(), found.first().map(|(_, reason)| *reason))
}

#[test]
fn many_links_within_seconds_are_a_sweep() {
    let phones = |count, every_ms| reasons(&series(count, every_ms, |_| {}));
    assert_eq!(phones(500, 20), (500, Some("sweep")));
    assert_eq!(phones(80, 126), (80, Some("sweep")));
    assert_eq!(phones(79, 1), (0, None));
    assert_eq!(phones(500, 127), (0, None));
    let computers = |count, every_ms| reasons(&series(count, every_ms, |it| it.is_desktop = true));
    assert_eq!(computers(20, 500), (20, Some("sweep")));
    assert_eq!(computers(19, 1), (0, None));
    assert_eq!(computers(500, 527), (0, None));
}

#[test]
fn a_client_that_lacks_what_its_browser_sends_follows_fewer_links() {
    let sweep = |count, every_ms, is_desktop| {
        reasons(&series(count, every_ms, |it| {
            it.is_pretended = true;
            it.is_desktop = is_desktop;
        }))
    };
    assert_eq!(sweep(20, 500, false), (20, Some("sweep")));
    assert_eq!(sweep(19, 1, false), (0, None));
    assert_eq!(sweep(5, 2000, true), (5, Some("sweep")));
    assert_eq!(sweep(4, 1, true), (0, None));
    // Those behind the same address that lack nothing are judged by their own number.
    let mixed = series(70, 10, |it| it.is_pretended = it.number < 30);
    let found = judge(&mixed);
    assert_eq!(found.len(), 30);
    assert!(found.iter().all(|(number, _)| *number < 30));
}

#[test]
fn only_the_visits_in_a_window_are_judged() {
    let mut visits = series(30, 100, |it| it.is_desktop = true);
    visits.push(Watched {
        is_desktop: true,
        ..visit(100, 100_000)
    });
    visits.push(Watched {
        is_desktop: true,
        ..visit(101, -100_000)
    });
    let found = judge(&visits);
    assert_eq!(found.len(), 30);
    assert!(found.iter().all(|(number, _)| *number < 30));
}

#[test]
fn one_link_or_many_clients_are_no_sweep() {
    let one_link = series(500, 10, |it| it.code = "same".into());
    assert_eq!(reasons(&one_link), (0, None));
    let people = series(500, 10, |it| {
        it.visitor = Some(VisitorId([(it.number % 251) as u8; 16]));
    });
    assert_eq!(reasons(&people), (0, None));
    let unknown = series(500, 10, |it| (it.visitor, it.client) = (None, None));
    assert_eq!(reasons(&unknown), (0, None));
}

#[test]
fn without_a_visitor_the_whole_address_and_the_agent_count() {
    let late = |client: &str, agents: i64| {
        reasons(&series(500, 10, |it| {
            it.visitor = None;
            it.client = Some(client.into());
            it.agent = it.number % agents;
        }))
    };
    for whole in ["192.0.2.7", "2001:db8::7"] {
        assert_eq!(late(whole, 1), (500, Some("sweep")));
        assert_eq!(late(whole, 50), (0, None));
    }
    // A network has many clients.
    for network in ["192.0.2.0", "2001:db8::"] {
        assert_eq!(late(network, 1), (0, None));
    }
}

#[test]
fn a_network_that_the_edge_left_of_an_address_is_no_client() {
    let phones = series(500, 10, |it| {
        it.is_truncated = true;
        it.is_pretended = it.number % 2 == 0;
        it.created_ms = Some(it.at_ms - 1000);
    });
    assert_eq!(reasons(&phones), (0, None));
    // Networks of servers are judged as networks.
    let servers = series(4, 10_000, |it| {
        it.is_truncated = true;
        it.is_hosting = true;
    });
    assert_eq!(reasons(&servers), (4, Some("hosting")));
    let nowhere = series(4, 10_000, |it| {
        (it.is_truncated, it.is_hosting) = (true, true);
        it.client = None;
    });
    assert_eq!(reasons(&nowhere), (4, Some("hosting")));
}

#[test]
fn several_links_right_after_their_creation_are_a_burst() {
    let burst = |count, age_ms, is_desktop| {
        reasons(&series(count, 1000, |it| {
            it.created_ms = Some(it.at_ms - age_ms);
            it.is_desktop = is_desktop;
        }))
    };
    assert_eq!(burst(5, 5000, true), (5, Some("burst")));
    assert_eq!(burst(4, 5000, true), (0, None));
    assert_eq!(burst(5, 5001, true), (0, None));
    assert_eq!(burst(5, -1, true), (0, None));
    assert_eq!(burst(19, 1000, false), (0, None));
    assert_eq!(burst(20, 1000, false), (20, Some("burst")));
}

#[test]
fn servers_follow_fewer_links() {
    let servers = |count| {
        reasons(&series(count, 10_000, |it| {
            it.is_hosting = true;
            it.visitor = Some(VisitorId([it.number as u8; 16]));
        }))
    };
    assert_eq!(servers(3), (0, None));
    assert_eq!(servers(4), (4, Some("hosting")));
    // With whole addresses, too, the network counts.
    let of = |addresses: [&str; 4]| {
        reasons(&series(4, 10_000, |it| {
            it.is_hosting = true;
            it.client = Some(addresses[it.number as usize].into());
        }))
    };
    let hosting = (4, Some("hosting"));
    assert_eq!(
        of(["192.0.2.1", "192.0.2.2", "192.0.2.254", "192.0.2.0"]),
        hosting
    );
    assert_eq!(
        of([
            "2001:db8:1::7",
            "2001:db8:1:2::7",
            "2001:db8:1:ff::",
            "2001:db8:1::"
        ]),
        hosting
    );
    assert_eq!(
        of(["192.0.2.1", "192.0.2.2", "192.0.2.3", "192.0.3.1"]),
        (0, None)
    );
}

#[test]
fn a_verdict_is_found_once() {
    let mut visits = series(40, 10, |it| it.is_desktop = true);
    for visit in &mut visits[..30] {
        visit.is_judged = true;
    }
    let found = judge(&visits);
    assert_eq!(found.len(), 10);
    assert!(found.iter().all(|(number, _)| *number >= 30));
    assert_eq!(reason("sweep"), Some("sweep"));
    assert_eq!(reason("browser"), None);
}

#[test]
fn only_codes_of_busy_clients_are_in_question() {
    assert_eq!(codes_in_question(&series(4, 1, |_| {})).len(), 0);
    assert_eq!(codes_in_question(&series(5, 1, |_| {})).len(), 5);
    assert_eq!(
        codes_in_question(&series(50, 1, |it| it.code = "same".into())).len(),
        0
    );
}

proptest! {
    /// The same as by looking at every window.
    #[test]
    fn windows_are_found(steps in prop::collection::vec((0_i64..300, 0_u8..40), 0..120)) {
        let mut at_ms = 0;
        let mut visits = Vec::new();
        for (number, (step, code)) in steps.into_iter().enumerate() {
            at_ms += step;
            visits.push(Watched { code: format!("{code}").into(), ..visit(number as i64, at_ms) });
        }
        let all: Vec<&Watched> = visits.iter().collect();
        let found: Vec<i64> = crowded(&all, 1000, 8).iter().map(|it| it.number).collect();
        let is_crowded = |it: &Watched| all.iter().any(|last| {
            let window = last.at_ms - 1000 + 1..=last.at_ms;
            let inside = all.iter().filter(|other| {
                window.contains(&other.at_ms) && other.number <= last.number
            });
            let codes: HashSet<&str> = inside.map(|other| &*other.code).collect();
            codes.len() >= 8 && window.contains(&it.at_ms) && it.number <= last.number
        });
        let expected: Vec<i64> =
            all.iter().filter(|it| is_crowded(it)).map(|it| it.number).collect();
        prop_assert_eq!(found, expected);
    }
}
