//! Visits on the connection that reads go out on, byte by byte.

use shortlink_resolver::vocabulary::Code;
use shortlink_resolver::vocabulary::visit::evidence::VisitEvidence;
use shortlink_resolver::vocabulary::visit::{VisitEvent, VisitFrames, VisitId, VisitMethod};
use shortlink_resolver::{
    Address, Answer, ConnectionError, Edge, EdgeSettings, LookUp, NodeId, NodeSettings, Notice,
    Now, Recorded, Tick, TopologySettings, VisitSettings,
};

const HELLO_REPLY: &[u8] = b"%2\r\n$6\r\nserver\r\n$5\r\nredis\r\n$5\r\nproto\r\n:3\r\n";
const STORED: &[u8] = b"$15\r\n1767225600000-0\r\n";
const RECORD: &[u8] = b"$27\r\n1 302 1 0 https://a.example\r\n";

fn node() -> NodeId {
    NodeId::new(0)
}

fn at(ms: u64) -> Now {
    Now {
        ms,
        unix: 1_767_225_600,
    }
}

fn edge() -> Edge<usize> {
    let settings = EdgeSettings {
        nodes: NodeSettings::default(),
        topology: TopologySettings::Server(Address::Unix("/redis".to_owned())),
        replica: None,
        cache: None,
    };
    let mut edge = Edge::new(settings, 0, 7);
    let visits = VisitSettings {
        batch: 2,
        ..VisitSettings::default()
    };
    edge.keep_visits(&visits, 99);
    edge
}

fn connect(edge: &mut Edge<usize>, now: u64) {
    assert_eq!(edge.tick(at(now)), Tick::Connect(node()));
    edge.connecting(node(), at(now));
    edge.connected(node(), at(now));
    take_output(edge);
    assert_eq!(answers(edge, HELLO_REPLY, now), []);
    assert!(edge.is_ready(node()));
    assert!(take_output(edge).ends_with(b"sl:gen\r\n"));
    assert_eq!(answers(edge, b"_\r\n", now), []);
}

fn take_output(edge: &mut Edge<usize>) -> Vec<u8> {
    let output = edge.output(node()).to_vec();
    edge.wrote(node(), output.len(), 0);
    output
}

/// Feeds a reply in and returns the requests that end with it, and whether by a redirect.
fn answers(edge: &mut Edge<usize>, bytes: &[u8], now: u64) -> Vec<(usize, bool)> {
    edge.input_space(node())[..bytes.len()].copy_from_slice(bytes);
    edge.received(node(), bytes.len(), 0);
    let mut done = Vec::new();
    while let Some(next) = edge.next_completion(node(), at(now)).expect("a connection") {
        let is_redirect = matches!(next.answer, Answer::Redirect { .. });
        done.push((next.token, is_redirect));
    }
    done
}

fn ask(edge: &mut Edge<usize>, token: usize, now: u64) {
    let code: Code = format!("c{token}").parse().expect("a code");
    assert!(matches!(
        edge.look_up(&code, token, at(now)),
        LookUp::Waiting(_)
    ));
}

fn visit(edge: &mut Edge<usize>, now: u64) -> Recorded {
    let event = VisitEvent {
        id: VisitId {
            origin: 0,
            sequence: 0,
        },
        time_ms: 1,
        status: 302,
        method: VisitMethod::Get,
        code: b"code",
        host: b"",
        client: b"",
        user_agent: b"",
        referrer: b"",
        accept_language: b"",
        purpose: b"",
        evidence: VisitEvidence::UNKNOWN,
        click: None,
        variant: b"",
    };
    edge.record_visit(event, at(now))
}

/// The commands of an output: the names of the visits in an `XADD`, or none for another one.
fn commands(output: &[u8]) -> Vec<Vec<u64>> {
    let mut rest = output;
    let mut commands = Vec::new();
    let line = |rest: &mut &[u8]| -> usize {
        let end = rest.iter().position(|&byte| byte == b'\r').expect("a line");
        let number = String::from_utf8_lossy(&rest[1..end]).parse();
        *rest = &rest[end + 2..];
        number.expect("a number")
    };
    while !rest.is_empty() {
        let count = line(&mut rest);
        let words: Vec<&[u8]> = (0..count)
            .map(|_| {
                let length = line(&mut rest);
                let word = &rest[..length];
                rest = &rest[length + 2..];
                word
            })
            .collect();
        commands.push(match words[..] {
            [b"XADD", b"sl:v:{0}", b"*", b"b", frames] => VisitFrames::new(frames)
                .map(|frame| frame.expect("a visit").id)
                .map(|id| {
                    assert_eq!(id.origin, 99);
                    id.sequence
                })
                .collect(),
            _ => Vec::new(),
        });
    }
    commands
}

#[test]
fn visits_leave_with_the_reads_and_each_reply_finds_its_own() {
    let mut edge = edge();
    connect(&mut edge, 0);
    ask(&mut edge, 1, 10);
    assert_eq!(visit(&mut edge, 10), Recorded::First);
    assert_eq!(visit(&mut edge, 10), Recorded::Full);
    edge.send_visits(at(10));
    ask(&mut edge, 2, 10);
    visit(&mut edge, 10);
    visit(&mut edge, 10);
    edge.send_visits(at(10));
    let output = take_output(&mut edge);
    assert_eq!(commands(&output), [vec![], vec![0, 1], vec![], vec![2, 3]]);
    let replies = [RECORD, STORED, RECORD].concat();
    let done = answers(&mut edge, &replies, 11);
    assert_eq!(done, [(1, true), (2, true)]);
    assert_eq!(edge.visits().expect("visits").held(), 2);
    assert_eq!(answers(&mut edge, STORED, 12), []);
    assert_eq!(edge.visits().expect("visits").held(), 0);
}

#[test]
fn what_was_not_confirmed_before_a_connection_was_lost_is_sent_on_the_next() {
    let mut edge = edge();
    for _ in 0..3 {
        visit(&mut edge, 0);
    }
    edge.send_visits(at(0));
    assert_eq!(
        edge.output(node()),
        b"",
        "no request waits for a connection"
    );
    connect(&mut edge, 1);
    edge.send_visits(at(1));
    assert_eq!(commands(&take_output(&mut edge)), [[0, 1]]);
    // The third has waited for its time.
    edge.send_visits(at(200));
    assert_eq!(commands(&take_output(&mut edge)), [[2]]);
    assert_eq!(answers(&mut edge, STORED, 201), []);
    edge.disconnected(node(), &ConnectionError::Lost, at(5000));
    connect(&mut edge, 5000);
    edge.send_visits(at(5000));
    assert_eq!(commands(&take_output(&mut edge)), [[2]]);
    assert_eq!(answers(&mut edge, STORED, 5001), []);
    assert_eq!(edge.visits().expect("visits").held(), 0);
}

#[test]
fn a_refusal_is_told_and_tried_again() {
    let mut edge = edge();
    connect(&mut edge, 0);
    visit(&mut edge, 0);
    visit(&mut edge, 0);
    edge.send_visits(at(0));
    take_output(&mut edge);
    let oom = b"-OOM command not allowed when used memory > 'maxmemory'.\r\n";
    assert_eq!(answers(&mut edge, oom, 1), []);
    match edge.next_notice() {
        Some(Notice::VisitsRefused(_, text)) => assert!(text.starts_with("OOM")),
        other => panic!("{other:?}"),
    }
    edge.send_visits(at(1));
    assert_eq!(take_output(&mut edge), b"");
    let next = edge.next_deadline();
    assert!(next > 1 && next <= 101, "{next}");
    edge.send_visits(at(next));
    assert_eq!(commands(&take_output(&mut edge)), [[0, 1]]);
    // Whatever is no name of an entry is no confirmation.
    assert_eq!(answers(&mut edge, b"+OK\r\n", next), []);
    assert_eq!(edge.visits().expect("visits").held(), 2);
}

#[test]
fn visits_alone_make_no_connection_hang_but_a_heartbeat_does() {
    let mut edge = edge();
    connect(&mut edge, 0);
    visit(&mut edge, 0);
    visit(&mut edge, 0);
    edge.send_visits(at(0));
    take_output(&mut edge);
    assert_eq!(edge.tick(at(999)), Tick::Idle);
    assert_eq!(take_output(&mut edge), b"");
    assert_eq!(edge.tick(at(1000)), Tick::Idle);
    assert_eq!(commands(&take_output(&mut edge)), [[]; 1]);
    assert_eq!(edge.tick(at(1199)), Tick::Idle);
    assert_eq!(
        edge.tick(at(1200)),
        Tick::Disconnect(node(), ConnectionError::Stalled)
    );
    // A request that waits for a reply behind them does not wait longer.
    let mut edge = self::edge();
    connect(&mut edge, 0);
    visit(&mut edge, 0);
    visit(&mut edge, 0);
    edge.send_visits(at(0));
    ask(&mut edge, 1, 100);
    assert_eq!(edge.tick(at(299)), Tick::Idle);
    assert_eq!(
        edge.tick(at(300)),
        Tick::Disconnect(node(), ConnectionError::Stalled)
    );
}

#[test]
fn nothing_is_sent_to_a_redis_that_is_late_for_visitors() {
    let mut edge = edge();
    connect(&mut edge, 0);
    ask(&mut edge, 1, 0);
    take_output(&mut edge);
    assert!(edge.next_expired(at(60)).is_some());
    visit(&mut edge, 60);
    visit(&mut edge, 60);
    edge.send_visits(at(60));
    assert_eq!(edge.output(node()), b"");
    assert_eq!(answers(&mut edge, RECORD, 70), []);
    edge.send_visits(at(400));
    assert_eq!(commands(&take_output(&mut edge)), [[0, 1]]);
}
