//! Feeds the edge any bytes from Redis, in any pieces: it neither panics nor answers a request twice, and other pieces
//! give the same answers and the same cache. Every answer can be served. Visits are confirmed by their own replies.

#![no_main]

use libfuzzer_sys::fuzz_target;
use shortlink_resolver::vocabulary::Code;
use shortlink_resolver::vocabulary::target::is_servable;
use shortlink_resolver::vocabulary::visit::evidence::VisitEvidence;
use shortlink_resolver::vocabulary::visit::{VisitEvent, VisitId, VisitMethod};
use shortlink_resolver::{
    Address, Answer, CacheSettings, Edge, EdgeSettings, LookUp, NodeId, NodeSettings, Now,
    TopologySettings, VisitSettings,
};

const REQUESTS: usize = 16;

const VISIT: VisitEvent<'static> = VisitEvent {
    id: VisitId { origin: 0, sequence: 0 },
    time_ms: 0,
    status: 302,
    method: VisitMethod::Get,
    code: b"c",
    host: b"",
    client: b"",
    user_agent: b"",
    referrer: b"",
    accept_language: b"",
    purpose: b"",
    evidence: VisitEvidence::UNKNOWN,
    click: None,
};

fn answers(bytes: &[u8], piece: usize) -> (Vec<(usize, String)>, (usize, u64), bool) {
    let now = Now { ms: 0, unix: 1000 };
    let node = NodeId::new(0);
    let settings = EdgeSettings {
        nodes: NodeSettings::default(),
        topology: TopologySettings::Server(Address::Unix("/redis".to_owned())),
        replica: None,
        cache: Some(CacheSettings { bytes: 1 << 16, stale_for: 0, longest_age: 1000 }),
    };
    let mut edge = Edge::new(settings, 0, 1);
    edge.keep_visits(&VisitSettings { batch: 1, ..VisitSettings::default() }, 1);
    edge.connecting(node, now);
    edge.connected(node, now);
    let mut done = Vec::new();
    let mut ask = |edge: &mut Edge<usize>, number: usize| {
        let code = Code::parse(format!("c{}", number / 2).as_bytes()).expect("a code");
        if let LookUp::Answered(answer, _) = edge.look_up(&code, number, now) {
            let _ = format!("{answer:?}");
        }
        edge.record_visit(VISIT, now);
        edge.send_visits(now);
        edge.wrote(node, edge.output(node).len(), 0);
    };
    for number in 0..REQUESTS {
        ask(&mut edge, number);
    }
    let stream = [b"%0\r\n+OK\r\n", bytes].concat();
    for piece in stream.chunks(piece) {
        let space = edge.input_space(node);
        if space.len() < piece.len() {
            return (done, (0, 0), true);
        }
        space[..piece.len()].copy_from_slice(piece);
        edge.received(node, piece.len(), 0);
        loop {
            match edge.next_completion(node, now) {
                Ok(Some(next)) => {
                    if let Answer::Redirect { target, .. } = next.answer {
                        assert!(is_servable(target));
                    }
                    done.push((next.token, format!("{:?}", next.answer)));
                    let token = next.token;
                    // The second request caches it, in the same order whatever the pieces.
                    if token < REQUESTS {
                        ask(&mut edge, token + REQUESTS);
                    }
                }
                Ok(None) => break,
                Err(_) => return (done, (0, 0), true),
            }
        }
    }
    let kept = edge.cache().map_or(0, |cache| cache.len());
    (done, (kept, edge.visits().map_or(0, |visits| visits.held())), false)
}

fuzz_target!(|input: &[u8]| {
    let Some((&piece, bytes)) = input.split_first() else { return };
    let (whole, kept, failed) = answers(bytes, 1 << 14);
    let (pieces, kept_in_pieces, failed_in_pieces) = answers(bytes, usize::from(piece).max(1));
    assert_eq!(whole, pieces);
    assert_eq!((kept, failed), (kept_in_pieces, failed_in_pieces));
    let mut tokens: Vec<usize> = whole.iter().map(|(token, _)| *token).collect();
    tokens.sort_unstable();
    let before = tokens.len();
    tokens.dedup();
    assert_eq!(tokens.len(), before, "answered twice");
});
