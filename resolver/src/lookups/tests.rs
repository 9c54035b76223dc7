use super::*;

fn code(text: &str) -> Key {
    Key::Link(text.parse().expect("a code"))
}

fn lookups() -> Lookups<char> {
    Lookups::new(CodeHashing::new(7))
}

fn begin(lookups: &mut Lookups<char>, text: &str, token: char, now: u64) -> (LookupId, Ticket) {
    let id = lookups.begin(&code(text), Some(NodeId::new(0)), false);
    let ticket = lookups.join(id, token, now);
    (id, ticket)
}

fn finish(lookups: &mut Lookups<char>, id: LookupId) -> String {
    lookups.finish(id);
    std::iter::from_fn(|| lookups.next_waiter(id)).collect()
}

#[test]
fn those_who_ask_for_the_same_code_wait_for_the_same_look_up() {
    let mut lookups = lookups();
    let (first, _) = begin(&mut lookups, "one", 'a', 1);
    let (second, _) = begin(&mut lookups, "two", 'b', 1);
    let found = lookups.find(&code("one")).expect("on its way");
    assert_eq!(found, first);
    lookups.join(found, 'c', 2);
    assert_eq!(lookups.waiting(), 3);
    assert_eq!(finish(&mut lookups, first), "ac");
    assert_eq!(lookups.find(&code("one")), None);
    assert_eq!(finish(&mut lookups, second), "b");
    assert_eq!((lookups.waiting(), lookups.oldest()), (0, None));
}

#[test]
fn who_gives_up_is_not_handed_out_and_the_look_up_goes_on() {
    let mut lookups = lookups();
    let (id, ticket) = begin(&mut lookups, "one", 'a', 1);
    lookups.join(id, 'b', 2);
    lookups.cancel(ticket);
    lookups.cancel(ticket);
    assert_eq!((lookups.waiting(), lookups.oldest()), (1, Some(2)));
    assert_eq!(finish(&mut lookups, id), "b");
    // A ticket never reaches who uses the slot afterwards.
    let (id, _) = begin(&mut lookups, "two", 'c', 3);
    lookups.cancel(ticket);
    assert_eq!(finish(&mut lookups, id), "c");
}

#[test]
fn requests_expire_in_order_and_once() {
    let mut lookups = lookups();
    let (one, _) = begin(&mut lookups, "one", 'a', 10);
    let (_, cancelled) = begin(&mut lookups, "two", 'b', 11);
    lookups.join(one, 'c', 12);
    lookups.join(one, 'd', 20);
    lookups.cancel(cancelled);
    assert_eq!(lookups.next_expired(9), None);
    assert!(!lookups.is_late(one));
    let expired = |token, late_node| {
        Some(Expired {
            token,
            lookup: one,
            late_node,
        })
    };
    assert_eq!(lookups.next_expired(12), expired('a', Some(NodeId::new(0))));
    assert_eq!(lookups.next_expired(12), expired('c', None));
    assert_eq!(lookups.next_expired(12), None);
    assert!(lookups.is_late(one));
    assert_eq!(lookups.oldest(), Some(20));
    assert_eq!(finish(&mut lookups, one), "d");
}

fn link(parameters: &str) -> CampaignLink<'_> {
    CampaignLink {
        campaign: "7".parse().expect("an id"),
        phase: Phase::Live,
        until: 9,
        parameters: Parameters::parse(parameters.as_bytes()).expect("parameters"),
    }
}

#[test]
fn links_wait_for_their_campaign_with_all_who_wait_for_them() {
    let mut lookups = lookups();
    let (one, _) = begin(&mut lookups, "one", 'a', 1);
    let (two, cancelled) = begin(&mut lookups, "two", 'b', 2);
    lookups.join(one, 'c', 3);
    lookups.know(one, &link("x&y"), false);
    assert_eq!(lookups.find(&code("one")), None, "no request joins it now");
    let campaign = Key::Campaign("7".parse().expect("an id"));
    let awaited = lookups.begin(&campaign, Some(NodeId::new(5)), true);
    assert_eq!(lookups.find(&campaign), Some(awaited));
    lookups.await_campaign(one, awaited);
    // Another request asks for the first, and its record is cached.
    let Key::Link(first) = code("one") else {
        panic!("a code")
    };
    let known = lookups.begin_known(&first, &link("z"), false);
    lookups.join(known, 'd', 4);
    lookups.await_campaign(known, awaited);
    let (again, _) = begin(&mut lookups, "one", 'e', 5);
    lookups.know(two, &link(""), false);
    lookups.await_campaign(two, awaited);
    // The campaign's node is the one that is late.
    let late = |token, lookup, late_node| {
        Some(Expired {
            token,
            lookup,
            late_node,
        })
    };
    let node = Some(NodeId::new(5));
    assert_eq!(lookups.next_expired(2), late('a', one, node));
    assert_eq!(lookups.next_expired(2), late('b', two, None));
    lookups.cancel(cancelled);
    assert!(lookups.is_late(awaited));
    lookups.finish(awaited);
    let mut done = Vec::new();
    while let Some(next) = lookups.next_link(awaited) {
        let parameters = lookups.known(next).expect("known").parameters;
        let parameters = String::from_utf8_lossy(parameters.as_bytes()).into_owned();
        done.push((parameters, finish(&mut lookups, next)));
    }
    let expected = [("x&y", "c"), ("z", "d"), ("", "")];
    assert_eq!(done, expected.map(|(p, t)| (p.to_owned(), t.to_owned())));
    assert_eq!(lookups.find(&code("one")), Some(again));
    assert_eq!(finish(&mut lookups, again), "e");
    assert_eq!(lookups.waiting(), 0);
    for _ in 0..4 {
        lookups.begin_known(&first, &link(""), false);
    }
    assert_eq!(lookups.lookups.len(), 5, "slots are used again");
}

#[test]
fn slots_are_used_again() {
    let mut lookups = lookups();
    for round in 0..1000 {
        let (id, _) = begin(&mut lookups, "one", 'a', round);
        lookups.join(id, 'b', round);
        assert_eq!(finish(&mut lookups, id), "ab");
        assert_eq!(lookups.oldest(), None);
    }
    assert_eq!((lookups.lookups.len(), lookups.waiters.len()), (1, 2));
}
