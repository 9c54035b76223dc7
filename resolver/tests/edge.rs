//! The edge without a cache against a Redis that this file plays, byte by byte.

use std::collections::VecDeque;

use proptest::prelude::*;
use shortlink_resolver::vocabulary::{Code, RedirectStatus};
use shortlink_resolver::{
    Address, Answer, Completion, ConnectionError, Edge, EdgeSettings, LookUp, MissReason, NodeId,
    NodeSettings, Now, Tick, Ticket, TopologySettings,
};

const HELLO: &str = "*4\r\n$5\r\nHELLO\r\n$1\r\n3\r\n$7\r\nSETNAME\r\n$14\r\nshortlink-edge\r\n";
const HELLO_REPLY: &str = "%2\r\n$6\r\nserver\r\n$5\r\nredis\r\n$5\r\nproto\r\n:3\r\n";
const GENERATION: &str = "*2\r\n$3\r\nGET\r\n$6\r\nsl:gen\r\n";
const NOW: u64 = 1_000_000;

/// One server, which is always the first node.
struct Client(Edge<usize>);

/// Redis can't be asked.
#[derive(Debug, PartialEq, Eq)]
struct Unavailable;

fn node() -> NodeId {
    NodeId::new(0)
}

fn at(ms: u64) -> Now {
    Now {
        ms,
        unix: 1_767_225_600,
    }
}

impl Client {
    fn new(nodes: NodeSettings, now: u64, seed: u64) -> Self {
        let settings = EdgeSettings {
            nodes,
            topology: TopologySettings::Server(Address::Unix("/redis".to_owned())),
            replica: None,
            cache: None,
        };
        Self(Edge::new(settings, now, seed))
    }

    fn submit(&mut self, code: &Code, number: usize, now: u64) -> Result<Ticket, Unavailable> {
        match self.0.look_up(code, number, at(now)) {
            LookUp::Waiting(ticket) => Ok(ticket),
            LookUp::Answered(Answer::Miss(MissReason::Unavailable), _) => Err(Unavailable),
            other => panic!("{other:?}"),
        }
    }

    fn cancel(&mut self, ticket: Ticket) {
        self.0.cancel(ticket);
    }

    fn output(&self) -> &[u8] {
        self.0.output(node())
    }

    fn wrote(&mut self, count: usize) {
        self.0.wrote(node(), count, 0);
    }

    fn input_space(&mut self) -> &mut [u8] {
        self.0.input_space(node())
    }

    fn received(&mut self, count: usize) {
        self.0.received(node(), count, 0);
    }

    fn next_completion(
        &mut self,
        now: u64,
    ) -> Result<Option<Completion<'_, usize>>, ConnectionError> {
        self.0.next_completion(node(), at(now))
    }

    fn next_expired(&mut self, now: u64) -> Option<usize> {
        self.0.next_expired(at(now)).map(|done| done.token)
    }

    fn tick(&mut self, now: u64) -> Option<Result<(), ConnectionError>> {
        match self.0.tick(at(now)) {
            Tick::Idle => None,
            Tick::Connect(id) => {
                assert_eq!(id, node());
                Some(Ok(()))
            }
            Tick::Disconnect(id, error) => {
                assert_eq!(id, node());
                Some(Err(error))
            }
        }
    }

    fn next_deadline(&mut self) -> u64 {
        self.0.next_deadline()
    }

    fn connecting(&mut self, now: u64) {
        self.0.connecting(node(), at(now));
    }

    fn connected(&mut self, now: u64) {
        self.0.connected(node(), at(now));
    }

    fn disconnected(&mut self, now: u64) {
        self.0.disconnected(node(), &ConnectionError::Lost, at(now));
    }

    fn is_ready(&self) -> bool {
        self.0.is_ready(node())
    }
}

fn code(number: usize) -> Code {
    format!("c{number}").parse().expect("a code")
}

fn get(number: usize) -> String {
    let key = format!("sl:l:c{number}");
    format!("*2\r\n$3\r\nGET\r\n${}\r\n{key}\r\n", key.len())
}

fn bulk(text: &str) -> String {
    format!("${}\r\n{text}\r\n", text.len())
}

fn client() -> Client {
    Client::new(NodeSettings::default(), NOW, 7)
}

/// A client whose handshake is done, and that has read the generation.
fn greeted(now: u64) -> Client {
    let mut client = Client::new(NodeSettings::default(), now, 7);
    assert_eq!(client.tick(now), Some(Ok(())));
    client.connecting(now);
    client.connected(now);
    assert_eq!(take_output(&mut client), HELLO);
    feed(&mut client, HELLO_REPLY.as_bytes());
    beat(&mut client, 1, now);
    assert!(client.is_ready());
    client
}

/// The same with a Redis that is proved current.
fn ready() -> Client {
    let mut client = greeted(NOW - 1_000);
    beat(&mut client, 2, NOW);
    client
}

fn beat(client: &mut Client, number: u64, now: u64) {
    assert_eq!(client.tick(now), None);
    assert_eq!(client.next_completion(now), Ok(None));
    assert_eq!(take_output(client), GENERATION);
    feed(client, bulk(&format!("7 0 {number}")).as_bytes());
    assert_eq!(client.next_completion(now), Ok(None));
}

fn take_output(client: &mut Client) -> String {
    let text = String::from_utf8(client.output().to_vec()).expect("text");
    client.wrote(text.len());
    text
}

fn feed(client: &mut Client, bytes: &[u8]) {
    client.input_space()[..bytes.len()].copy_from_slice(bytes);
    client.received(bytes.len());
}

fn completions(client: &mut Client, now: u64) -> Result<Vec<(usize, String)>, ConnectionError> {
    let mut done = Vec::new();
    while let Some(Completion { token, answer, .. }) = client.next_completion(now)? {
        done.push((token, show(answer)));
    }
    Ok(done)
}

fn show(answer: Answer<'_>) -> String {
    match answer {
        Answer::Redirect {
            status: RedirectStatus::Found,
            forwards_query: false,
            has_click_id: false,
            is_plan: false,
            instead_of: None,
            target,
        } => String::from_utf8_lossy(target).into_owned(),
        other => format!("{other:?}"),
    }
}

fn miss(reason: MissReason) -> String {
    show(Answer::Miss(reason))
}

#[test]
fn requests_of_one_turn_leave_in_one_write_and_replies_are_matched_in_order() {
    let mut client = ready();
    for number in 0..3 {
        client
            .submit(&code(number), number, NOW)
            .expect("submitted");
    }
    assert_eq!(take_output(&mut client), [get(0), get(1), get(2)].concat());
    assert!(client.output().is_empty());
    let replies = [
        bulk("1 302 1 0 https://a.example/"),
        "_\r\n".into(),
        bulk("1 410 2"),
    ]
    .concat();
    feed(&mut client, replies.as_bytes());
    assert_eq!(
        completions(&mut client, NOW),
        Ok(vec![
            (0, "https://a.example/".to_owned()),
            (1, miss(MissReason::Absent)),
            (2, show(Answer::Gone)),
        ])
    );
}

#[test]
fn replies_may_be_cut_at_every_byte() {
    let replies = [
        bulk("1 302 1 0 https://a.example/"),
        ">2\r\n+invalidate\r\n_\r\n".into(),
        "-LOADING Redis is loading the dataset in memory\r\n".into(),
        bulk("1 302 1 0 https://b.example/"),
    ]
    .concat();
    let expected = vec![
        (0, "https://a.example/".to_owned()),
        (1, miss(MissReason::Error)),
        (2, "https://b.example/".to_owned()),
    ];
    for cut in 0..=replies.len() {
        let mut client = ready();
        for number in 0..3 {
            client
                .submit(&code(number), number, NOW)
                .expect("submitted");
        }
        let (first, second) = replies.as_bytes().split_at(cut);
        feed(&mut client, first);
        let mut done = completions(&mut client, NOW).expect("whole replies");
        feed(&mut client, second);
        done.extend(completions(&mut client, NOW).expect("whole replies"));
        assert_eq!(done, expected, "cut at {cut}");
    }
}

#[test]
fn partial_writes_go_on_where_they_stopped() {
    let mut client = ready();
    client.submit(&code(1), 1, NOW).expect("submitted");
    client.wrote(5);
    client.submit(&code(2), 2, NOW).expect("submitted");
    let rest = [&get(1)[5..], &get(2)].concat();
    assert_eq!(take_output(&mut client), rest);
}

#[test]
fn the_first_requests_wait_for_the_connection_and_follow_the_handshake() {
    let mut client = client();
    client
        .submit(&code(1), 1, NOW)
        .expect("submitted before there is a connection");
    assert!(client.output().is_empty());
    client.connecting(NOW);
    client
        .submit(&code(2), 2, NOW)
        .expect("submitted while connecting");
    client.connected(NOW);
    assert_eq!(take_output(&mut client), [HELLO, &get(1), &get(2)].concat());
    let replies = [HELLO_REPLY, "_\r\n", "_\r\n"].concat();
    feed(&mut client, replies.as_bytes());
    let absent = miss(MissReason::Absent);
    assert_eq!(
        completions(&mut client, NOW),
        Ok(vec![(1, absent.clone()), (2, absent)])
    );
}

#[test]
fn a_database_is_selected_before_anything_is_read() {
    let settings = NodeSettings {
        database: 5,
        ..NodeSettings::default()
    };
    let mut client = Client::new(settings, NOW, 7);
    client.connecting(NOW);
    client.submit(&code(1), 1, NOW).expect("submitted");
    client.connected(NOW);
    let select = "*2\r\n$6\r\nSELECT\r\n$1\r\n5\r\n";
    assert_eq!(take_output(&mut client), [HELLO, select, &get(1)].concat());
    // When it is refused, the reply to the request comes from a wrong database.
    let replies = [
        HELLO_REPLY,
        "-ERR DB index is out of range\r\n",
        &bulk("1 404 7"),
    ]
    .concat();
    feed(&mut client, replies.as_bytes());
    let refused = ConnectionError::Refused("ERR DB index is out of range".to_owned());
    assert_eq!(client.next_completion(NOW), Err(refused));
    client.disconnected(NOW);
    assert_eq!(
        completions(&mut client, NOW),
        Ok(vec![(1, miss(MissReason::Unavailable))])
    );
}

#[test]
fn garbage_ends_the_connection_and_all_that_wait_go_to_the_fallback() {
    for garbage in [
        "HTTP/1.1 400 Bad Request\r\n",
        "$3\r\nabcd\r\n",
        "$-7\r\n",
        "\0\0\0",
    ] {
        let mut client = ready();
        client.submit(&code(1), 1, NOW).expect("submitted");
        client.submit(&code(2), 2, NOW).expect("submitted");
        feed(&mut client, [&bulk("1 404 7"), garbage].concat().as_bytes());
        let first = client
            .next_completion(NOW)
            .map(|done| done.map(|done| done.token));
        assert_eq!(first, Ok(Some(1)));
        assert!(matches!(
            client.next_completion(NOW),
            Err(ConnectionError::Protocol(_))
        ));
        client.disconnected(NOW);
        assert_eq!(
            completions(&mut client, NOW),
            Ok(vec![(2, miss(MissReason::Unavailable))])
        );
    }
}

#[test]
fn a_reply_to_no_request_ends_the_connection() {
    let mut client = ready();
    feed(&mut client, b"+OK\r\n");
    assert!(matches!(
        client.next_completion(NOW),
        Err(ConnectionError::Protocol(_))
    ));
}

#[test]
fn an_oversized_value_spoils_its_own_request_alone() {
    let mut client = ready();
    client.submit(&code(1), 1, NOW).expect("submitted");
    client.submit(&code(2), 2, NOW).expect("submitted");
    let size = 1 << 20;
    feed(&mut client, format!("${size}\r\n").as_bytes());
    let mut done = completions(&mut client, NOW).expect("reported");
    let mut left = size + 2;
    while left > 0 {
        let space = client.input_space();
        let count = space.len().min(left);
        space[..count].fill(b'x');
        client.received(count);
        left -= count;
        done.extend(completions(&mut client, NOW).expect("skipped"));
    }
    feed(&mut client, bulk("1 302 1 0 https://a.example/").as_bytes());
    done.extend(completions(&mut client, NOW).expect("read"));
    let expected = vec![
        (1, miss(MissReason::Unreadable)),
        (2, "https://a.example/".to_owned()),
    ];
    assert_eq!(done, expected);
}

#[test]
fn a_request_out_of_time_is_handed_out_once_and_its_late_reply_is_ignored() {
    let mut client = ready();
    client.submit(&code(1), 1, NOW).expect("submitted");
    client.submit(&code(2), 2, NOW + 30).expect("submitted");
    assert_eq!(client.next_deadline(), NOW + 50);
    assert_eq!(client.next_expired(NOW + 49), None);
    assert_eq!(client.next_expired(NOW + 50), Some(1));
    assert_eq!(client.next_expired(NOW + 50), None);
    assert_eq!(client.next_deadline(), NOW + 80);
    feed(
        &mut client,
        [bulk("1 404 7"), bulk("1 410 1")].concat().as_bytes(),
    );
    assert_eq!(
        completions(&mut client, NOW + 60),
        Ok(vec![(2, show(Answer::Gone))])
    );
}

#[test]
fn a_cancelled_request_is_never_handed_out() {
    let mut client = ready();
    let ticket = client.submit(&code(1), 1, NOW).expect("submitted");
    client.submit(&code(2), 2, NOW).expect("submitted");
    client.cancel(ticket);
    assert!(client.0.has_waiting());
    feed(
        &mut client,
        [bulk("1 404 7"), bulk("1 404 7")].concat().as_bytes(),
    );
    assert_eq!(
        completions(&mut client, NOW),
        Ok(vec![(2, show(Answer::Unknown))])
    );
    assert!(!client.0.has_waiting());
}

#[test]
fn a_redis_that_hangs_is_given_up_and_requests_no_longer_wait_for_it() {
    let mut client = ready();
    client.submit(&code(1), 1, NOW).expect("submitted");
    assert_eq!(client.next_expired(NOW + 50), Some(1));
    assert_eq!(client.next_deadline(), NOW + 200);
    assert_eq!(client.tick(NOW + 199), None);
    assert_eq!(client.tick(NOW + 200), Some(Err(ConnectionError::Stalled)));
    client.disconnected(NOW + 200);
    assert_eq!(client.submit(&code(2), 2, NOW + 200), Err(Unavailable));
    // It accepts the connection (its kernel does) but does not answer the handshake.
    let retry = client.next_deadline();
    assert!((NOW + 225..=NOW + 250).contains(&retry), "{retry}");
    assert_eq!(client.tick(retry), Some(Ok(())));
    client.connecting(retry);
    client.connected(retry);
    assert_eq!(client.submit(&code(3), 3, retry), Err(Unavailable));
    assert_eq!(client.tick(retry + 999), None);
    assert_eq!(
        client.tick(retry + 1000),
        Some(Err(ConnectionError::ConnectTimeout))
    );
}

#[test]
fn a_settled_connection_that_closes_is_replaced_at_once_and_one_that_does_not_settle_is_not() {
    let mut client = ready();
    client.submit(&code(1), 1, NOW + 5000).expect("submitted");
    client.disconnected(NOW + 5000);
    assert_eq!(
        completions(&mut client, NOW),
        Ok(vec![(1, miss(MissReason::Unavailable))])
    );
    assert_eq!(client.tick(NOW + 5000), Some(Ok(())));
    assert!(client.submit(&code(2), 2, NOW + 5000).is_ok());

    let mut client = greeted(NOW);
    client.disconnected(NOW + 10);
    assert_eq!(client.tick(NOW + 10), None);
    assert_eq!(client.submit(&code(1), 1, NOW + 10), Err(Unavailable));
}

#[test]
fn the_wait_between_attempts_doubles_up_to_two_seconds_and_is_spread() {
    let mut client = client();
    let mut now = NOW;
    let mut waits = Vec::new();
    for _ in 0..12 {
        assert_eq!(client.tick(now), Some(Ok(())));
        client.connecting(now);
        client.disconnected(now);
        let wait = client.next_deadline() - now;
        waits.push(wait);
        now += wait;
    }
    for (attempt, wait) in waits.iter().enumerate() {
        let longest = (50u64 << attempt).min(2000);
        assert!((longest / 2..=longest).contains(wait), "{waits:?}");
    }
    let other = |seed| {
        let mut client = Client::new(NodeSettings::default(), NOW, seed);
        (0..8)
            .map(|_| {
                client.connecting(NOW);
                client.disconnected(NOW);
                client.next_deadline()
            })
            .collect::<Vec<_>>()
    };
    assert_ne!(other(1), other(2));
}

/// One step of a random life.
#[derive(Clone, Debug)]
enum Step {
    Submit,
    Cancel(prop::sample::Index),
    /// Redis answers so many requests …
    Reply(u8),
    /// … of which so many bytes arrive.
    Deliver(u16),
    Pass(u8),
    Disconnect,
    Reconnect,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        6 => Just(Step::Submit),
        1 => any::<prop::sample::Index>().prop_map(Step::Cancel),
        3 => (1..5u8).prop_map(Step::Reply),
        4 => (1..80u16).prop_map(Step::Deliver),
        2 => (1..40u8).prop_map(Step::Pass),
        1 => Just(Step::Disconnect),
        3 => Just(Step::Reconnect),
    ];
    proptest::collection::vec(step, 1..120)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    /// Whatever happens in whatever order: each request is handed out exactly once unless it was
    /// cancelled, and an answer is always the answer to its own code.
    #[test]
    fn every_request_is_answered_once_and_with_its_own_answer(steps in steps()) {
        let mut client = ready();
        let mut now = NOW;
        let mut tickets = Vec::new();
        let mut cancelled = Vec::new();
        let mut handed_out: Vec<usize> = Vec::new();
        // Keys whose records were not sent yet; replies that did not arrive yet.
        let mut asked: VecDeque<String> = VecDeque::new();
        let mut wire: VecDeque<u8> = VecDeque::new();
        let mut connected = true;

        for step in steps {
            match step {
                Step::Submit => {
                    let number = tickets.len();
                    match client.submit(&code(number), number, now) {
                        Ok(ticket) => tickets.push(Some(ticket)),
                        Err(Unavailable) => { tickets.push(None); handed_out.push(number); }
                    }
                }
                Step::Cancel(index) if !tickets.is_empty() => {
                    let number = index.index(tickets.len());
                    if let Some(ticket) = tickets[number] {
                        client.cancel(ticket);
                        cancelled.push(number);
                    }
                }
                Step::Reply(count) => for _ in 0..count {
                    if let Some(key) = asked.pop_front() {
                        let number = key.strip_prefix("sl:l:c").map(|it| it.parse::<usize>());
                        wire.extend(bulk(&match number {
                            None if key == "sl:gen" => format!("1 0 {now}"),
                            None => "1 302 1 0 https://e/{0}".to_owned(),
                            Some(Ok(number)) if number % 3 > 0 => {
                                format!("c{} {number}", number % 3)
                            }
                            Some(number) => {
                                format!("1 302 1 0 https://e/{}", number.expect("a number"))
                            }
                        }).bytes());
                    }
                },
                Step::Deliver(count) if connected => {
                    let count = usize::from(count).min(wire.len());
                    let bytes: Vec<u8> = wire.drain(..count).collect();
                    feed(&mut client, &bytes);
                }
                Step::Pass(time) => now += u64::from(time),
                Step::Disconnect if connected => {
                    client.disconnected(now);
                    connected = false;
                    asked.clear();
                    wire.clear();
                }
                Step::Reconnect if !connected => {
                    now = now.max(client.next_deadline());
                    client.connecting(now);
                    client.connected(now);
                    connected = true;
                    wire.extend(HELLO_REPLY.bytes());
                }
                _ => {}
            }
            if connected {
                let sent = take_output(&mut client);
                let keys = sent.split("\r\n").filter(|line| line.starts_with("sl:"));
                asked.extend(keys.map(str::to_owned));
            }
            while let Some(number) = client.next_expired(now) {
                handed_out.push(number);
            }
            for (number, answer) in completions(&mut client, now).expect("a sound connection") {
                let lost = miss(MissReason::Unavailable);
                prop_assert!(answer == format!("https://e/{number}") || answer == lost, "{answer}");
                handed_out.push(number);
            }
        }
        client.disconnected(now);
        handed_out.extend(completions(&mut client, now).expect("lost").into_iter().map(|d| d.0));

        handed_out.sort_unstable();
        let before = handed_out.len();
        handed_out.dedup();
        prop_assert_eq!(handed_out.len(), before, "handed out twice");
        for number in 0..tickets.len() {
            let out = handed_out.binary_search(&number).is_ok();
            prop_assert!(out || cancelled.contains(&number), "{number} is never answered");
        }
    }
}
