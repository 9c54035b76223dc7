//! Webhooks while two sidecars are killed in turn and the endpoint refuses every third message: no event is lost, their
//! ids deduplicate to exactly the visits, and those of a link arrive in their order.
//!
//! `SHORTLINK_KILLS` says how many kills there are.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit, Mac};
use serde_json::{Value, json};
use sha2::Sha256;
use shortlink_tests::chance::Chance;
use shortlink_tests::http;
use shortlink_tests::ports;
use shortlink_tests::postgres::Postgres;
use shortlink_tests::redis::Redis;
use shortlink_tests::sidecar::{Sidecar, api};
use shortlink_tests::stack::directory;
use shortlink_tests::visits::put_of;
use shortlink_tests::wait::{OverAtEnd, SOON, pass, until};
use vocabulary::visit::VisitId;

/// The default number of kills, the number of those that follow each other, and the number of events before them.
const KILLS: u64 = 20;
const TOGETHER: u64 = 5;
const EVENTS: u64 = 150;

/// The largest batches of the webhook after each kill, in turn. A link with many visits waits for each refused message, so
/// that single events are few.
const MAX_BATCH: [u64; 7] = [20, 10, 5, 50, 1, 50, 2];

/// Number of links, of visits of a batch, and of visits that wait for the endpoint.
const LINKS: u64 = 60;
const BATCH: u64 = 20;
const AHEAD: u64 = 1000;

/// The limit until another sidecar delivers the events of one that was killed: its claim expires after six seconds.
const TAKEN_OVER: Duration = Duration::from_secs(60);

pub(super) const STREAM: &str = "sl:v:{0}";

pub(super) const PHONE: &str = "Mozilla/5.0 (iPhone; CPU iPhone OS 17_2 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like Gecko) \
                     Version/17.2 Mobile/15E148 Safari/604.1";

pub(super) const SETTINGS: &str = "[visits]\njudge_after_s = 0\n\
                        [webhooks]\nplain_http = true\nallowed_networks = [\"127.0.0.0/8\"]\n";

/// An endpoint: it checks signatures, refuses some messages, and stores the events of the others as they come.
pub(super) struct Endpoint {
    port: u16,
    pub(super) received: Arc<Received>,
}

#[derive(Default)]
pub(super) struct Received {
    pub(super) secret: Mutex<String>,
    pub(super) messages: AtomicU64,
    /// Each message with a number that is divisible by this is refused; none if it is 0.
    pub(super) refused: AtomicU64,
    /// Events in the order of their arrival, again each time.
    pub(super) events: Mutex<Vec<Value>>,
    ids: Mutex<BTreeSet<String>>,
    /// The number of signatures of the last message.
    signatures: AtomicU64,
}

impl Endpoint {
    pub(super) fn start(refused: u64) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let received = Arc::new(Received::default());
        received.refused.store(refused, Ordering::Relaxed);
        let shared = Arc::clone(&received);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let received = Arc::clone(&shared);
                thread::spawn(move || received.serve(stream));
            }
        });
        Self { port, received }
    }

    pub(super) fn url(&self) -> String {
        format!("http://127.0.0.1:{}/hook", self.port)
    }

    fn count(&self) -> u64 {
        self.received.ids.lock().expect("no holder panics").len() as u64
    }
}

impl Received {
    /// Answers the messages of a connection. A sidecar that is killed breaks it off.
    fn serve(&self, mut stream: TcpStream) {
        let mut reader = BufReader::new(stream.try_clone().expect("a stream"));
        while let Some((headers, body)) = read_message(&mut reader) {
            let status = self.take(&headers, &body);
            let answer = format!("HTTP/1.1 {status} x\r\nContent-Length: 0\r\n\r\n");
            if stream.write_all(answer.as_bytes()).is_err() {
                return;
            }
        }
    }

    fn take(&self, headers: &BTreeMap<String, String>, body: &[u8]) -> u16 {
        let number = self.messages.fetch_add(1, Ordering::Relaxed) + 1;
        let refused = self.refused.load(Ordering::Relaxed);
        if refused > 0 && number.is_multiple_of(refused) {
            return 503;
        }
        let secret = self.secret.lock().expect("no holder panics").clone();
        assert!(is_signed(&secret, headers, body), "{headers:?}");
        let signatures = headers["webhook-signature"].split(' ').count();
        self.signatures.store(signatures as u64, Ordering::Relaxed);
        let message: Value = serde_json::from_slice(body).expect("JSON");
        assert_eq!(message["id"], headers["webhook-id"], "{message}");
        let events = match message["type"].as_str() {
            Some("batch") => message["data"].as_array().expect("events").clone(),
            _ => vec![message],
        };
        let mut ids = self.ids.lock().expect("no holder panics");
        let mut all = self.events.lock().expect("no holder panics");
        for event in events {
            ids.insert(event["id"].as_str().expect("an id").to_owned());
            all.push(event);
        }
        204
    }
}

fn read_message(reader: &mut impl BufRead) -> Option<(BTreeMap<String, String>, Vec<u8>)> {
    let mut line = String::new();
    reader.read_line(&mut line).ok().filter(|read| *read > 0)?;
    assert!(line.starts_with("POST /hook "), "{line}");
    let mut headers = BTreeMap::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok().filter(|read| *read > 0)?;
        let Some((name, value)) = line.trim().split_once(": ") else {
            break;
        };
        headers.insert(name.to_lowercase(), value.to_owned());
    }
    let length = headers.get("content-length")?.parse().expect("a number");
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    Some((headers, body))
}

/// Checks a signature as the specification has it.
fn is_signed(secret: &str, headers: &BTreeMap<String, String>, body: &[u8]) -> bool {
    let key = secret.strip_prefix("whsec_").expect("a secret");
    let key = STANDARD.decode(key).expect("base64");
    let mut mac = Hmac::<Sha256>::new_from_slice(&key).expect("a key");
    let (id, at) = (&headers["webhook-id"], &headers["webhook-timestamp"]);
    mac.update(format!("{id}.{at}.").as_bytes());
    mac.update(body);
    let signature = format!("v1,{}", STANDARD.encode(mac.finalize().into_bytes()));
    headers["webhook-signature"]
        .split(' ')
        .any(|it| it == signature)
}

/// Creates a webhook for an endpoint; returns its id.
pub(super) fn create(sidecar: &Sidecar, key: &str, endpoint: &Endpoint, members: &Value) -> String {
    let mut body = json!({"name": "test", "url": endpoint.url()});
    for (name, value) in members.as_object().expect("members") {
        body[name] = value.clone();
    }
    // The endpoint must know the secret before its first message: no visit is stored meanwhile.
    let created = api(sidecar.port, key, "POST", "/v1/webhooks", Some(&body));
    let webhook = created.json();
    assert_eq!(created.status, 201, "{webhook}");
    let secret = webhook["secret"].as_str().expect("a secret");
    secret.clone_into(&mut endpoint.received.secret.lock().expect("no holder panics"));
    webhook["id"].as_str().expect("an id").to_owned()
}

/// Adds visits until it is over: half of them of the first link, the others of all in turn.
fn visit(
    redis: u16,
    links: &[String],
    sent: &AtomicU64,
    endpoint: &Endpoint,
    is_over: &AtomicBool,
) {
    while !is_over.load(Ordering::Relaxed) {
        let first = sent.load(Ordering::Relaxed);
        until("the endpoint follows", TAKEN_OVER, || {
            first < endpoint.count() + AHEAD || is_over.load(Ordering::Relaxed)
        });
        let visits = (first..first + BATCH).map(|n| {
            let link = if n % 2 == 0 { 0 } else { n / 2 % LINKS };
            let id = VisitId {
                origin: first + 1,
                sequence: n,
            };
            (id, links[link as usize].as_str(), 1_780_315_200_000 + n)
        });
        put_of(redis, STREAM, visits, PHONE);
        sent.fetch_add(BATCH, Ordering::Relaxed);
        pass(Duration::from_millis(10));
    }
}

/// All visits of the feed, in its order.
fn stored(port: u16, key: &str) -> Vec<Value> {
    let (mut after, mut visits) = (String::new(), Vec::new());
    loop {
        let path = format!("/v1/visits?after={after}&limit=1000");
        let page = http::send(port, "GET", &path, &[("X-Api-Key", key)]).json();
        let next = page["nextCursor"].as_str().expect("a cursor");
        if next == after {
            return visits;
        }
        next.clone_into(&mut after);
        visits.extend(page["visits"].as_array().expect("visits").clone());
    }
}

fn number(visit: &Value) -> i64 {
    let id = visit["id"].as_str().expect("an id");
    id.parse().expect("a number")
}

/// The visits of events at their first arrival, by link.
fn first_arrivals(endpoint: &Endpoint) -> BTreeMap<String, Vec<i64>> {
    let events = endpoint.received.events.lock().expect("no holder panics");
    let mut seen = BTreeSet::new();
    let mut by_link: BTreeMap<String, Vec<i64>> = BTreeMap::new();
    for event in events.iter() {
        assert_eq!(event["type"], "link.clicked", "{event}");
        if seen.insert(event["id"].as_str().expect("an id")) {
            let code = event["data"]["shortCode"].as_str().expect("a code");
            let of_link = by_link.entry(code.to_owned()).or_default();
            of_link.push(number(&event["data"]));
        }
    }
    by_link
}

#[test]
fn events_outlive_kills_on_sqlite() {
    let directory = directory();
    let database = format!("sqlite:{}", directory.path().join("links.db").display());
    outlive_kills(&database, directory.path());
}

#[test]
fn events_outlive_kills_on_postgres() {
    let directory = directory();
    let postgres = Postgres::start(&directory.path().join("postgres"));
    outlive_kills(&postgres.url(), directory.path());
}

fn outlive_kills(database: &str, directory: &std::path::Path) {
    let kills = std::env::var("SHORTLINK_KILLS").ok();
    let kills = kills.map_or(KILLS, |kills| kills.parse().expect("SHORTLINK_KILLS"));
    let redis = Redis::start(&directory.join("redis"), ports::free());
    let mut first = Sidecar::start_on(
        database,
        &directory.join("sidecar"),
        ports::free(),
        redis.port,
        SETTINGS,
    );
    first.key = first.make_key(&["links:write", "stats:read", "webhooks:admin"]);
    let key = first.key.clone();
    let links: Vec<String> = (0..LINKS)
        .map(|n| {
            let body = json!({"longUrl": format!("https://example.com/{n}")});
            let link = api(first.port, &key, "POST", "/v1/links", Some(&body)).json();
            link["shortCode"].as_str().expect("a code").to_owned()
        })
        .collect();
    let (each, once) = (Endpoint::start(3), Endpoint::start(3));
    let batched = create(
        &first,
        &key,
        &each,
        &json!({"clicks": "each", "maxBatch": 20}),
    );
    create(&first, &key, &once, &json!({"clicks": "first"}));
    let second = first.start_beside(ports::free());
    let mut sidecars = [first, second];
    let (sent, is_over) = (AtomicU64::new(0), AtomicBool::new(false));
    let mut chance = Chance::default();
    thread::scope(|scope| {
        let over = OverAtEnd(&is_over);
        scope.spawn(|| visit(redis.port, &links, &sent, &each, &is_over));
        for kill in 0..kills {
            // The next ones come while no sidecar delivers yet, or another one has just begun to.
            if kill % TOGETHER == 0 {
                let before = each.count();
                until("more events", TAKEN_OVER, || {
                    each.count() >= before + EVENTS
                });
            }
            pass(chance.time_below(Duration::from_millis(50)));
            let sidecar = &mut sidecars[(kill % 2) as usize];
            sidecar.kill();
            // Settings that change meanwhile lose no event, and put no two of a link on their way.
            let port = sidecars[((kill + 1) % 2) as usize].port;
            let most = MAX_BATCH[kill as usize % MAX_BATCH.len()];
            let body = json!({"maxBatch": most});
            let path = format!("/v1/webhooks/{batched}");
            let changed = api(port, &key, "PATCH", &path, Some(&body));
            assert_eq!(changed.status, 200);
            sidecars[(kill % 2) as usize].start_again();
        }
        drop(over);
    });
    let all = sent.load(Ordering::Relaxed);
    until("all events have arrived", TAKEN_OVER * 2, || {
        each.count() >= all && once.count() >= LINKS
    });
    let stored = stored(sidecars[0].port, &key);
    assert_eq!(stored.len() as u64, all);
    let mut expected: BTreeMap<String, Vec<i64>> = BTreeMap::new();
    for visit in &stored {
        assert_eq!(visit["class"], "human", "{visit}");
        let code = visit["shortCode"].as_str().expect("a code").to_owned();
        expected.entry(code).or_default().push(number(visit));
    }
    assert!(
        first_arrivals(&each) == expected,
        "events are not the visits in their order"
    );
    // The sidecar that commits first has the first visit of a link, which need not be the one with the lowest number.
    let firsts = first_arrivals(&once);
    assert!(firsts.keys().eq(expected.keys()));
    for (code, first) in firsts {
        assert_eq!(first.len(), 1, "{code}");
        assert!(expected[&code].contains(&first[0]), "{code}");
    }
    let messages = each.received.messages.load(Ordering::Relaxed);
    let arrived = each.received.events.lock().expect("no holder panics").len() as u64;
    println!(
        "{kills} kills, {all} visits, {messages} messages, {} events again",
        arrived - all
    );
}

#[test]
fn a_secret_is_rotated_while_both_sign_and_events_are_replayed() {
    let directory = directory();
    let redis = Redis::start(&directory.path().join("redis"), ports::free());
    let sidecar = Sidecar::start(
        &directory.path().join("sidecar"),
        ports::free(),
        redis.port,
        SETTINGS,
    );
    let key = sidecar.make_key(&["links:write", "webhooks:admin"]);
    let endpoint = Endpoint::start(0);
    let id = create(&sidecar, &key, &endpoint, &json!({"clicks": "each"}));
    let path = format!("/v1/webhooks/{id}");
    let created = api(sidecar.port, &key, "GET", &path, None).json();
    let call = |action: &str, body: Value| {
        let path = format!("{path}/{action}");
        let answer = api(sidecar.port, &key, "POST", &path, Some(&body));
        (answer.status, answer.json())
    };
    let (status, attempt) = call("test", json!({}));
    assert_eq!(
        (status, &attempt["delivered"]),
        (200, &json!(true)),
        "{attempt}"
    );
    let visit = |sequence: u64| {
        let id = VisitId {
            origin: 1,
            sequence,
        };
        put_of(redis.port, STREAM, [(id, "code", 1_780_315_200_000)], PHONE);
    };
    visit(0);
    // The test, and the visit.
    until("a message", SOON, || endpoint.count() == 2);
    let signatures = || endpoint.received.signatures.load(Ordering::Relaxed);
    assert_eq!(signatures(), 1);
    let (status, rotated) = call("rotate", json!({"overlapSeconds": 600}));
    assert_eq!(status, 200, "{rotated}");
    // The secret of before still signs, and soon the new one does, too.
    let mut visits = 1;
    until("a message with two signatures", SOON, || {
        visit(visits);
        visits += 1;
        signatures() == 2
    });
    until("all messages", SOON, || endpoint.count() == visits + 1);
    let secret = rotated["secret"].as_str().expect("a secret");
    secret.clone_into(&mut endpoint.received.secret.lock().expect("no holder panics"));
    visit(visits);
    until("a message", SOON, || endpoint.count() == visits + 2);
    let before = endpoint.received.messages.load(Ordering::Relaxed);
    let (status, replayed) = call("replay", json!({"since": created["createdAt"]}));
    assert_eq!(status, 200, "{replayed}");
    until("the same events again", SOON, || {
        endpoint.received.messages.load(Ordering::Relaxed) == before + visits + 1
    });
    assert_eq!(endpoint.count(), visits + 2);
    let paused = call("pause", json!({})).1;
    assert_eq!(
        (&paused["state"], &paused["pausedReason"]),
        (&json!("paused"), &json!("requested"))
    );
    visit(visits + 1);
    let attempts = http::send(
        sidecar.port,
        "GET",
        &format!("{path}/attempts"),
        &[("X-Api-Key", &key)],
    );
    let attempts = attempts.json()["attempts"].clone();
    let attempts = attempts.as_array().expect("attempts");
    assert!(attempts.len() >= 4, "{attempts:?}");
    assert!(
        attempts.iter().all(|it| it["delivered"] == true),
        "{attempts:?}"
    );
    call("resume", json!({}));
    until("the event that has waited", SOON, || {
        endpoint.count() == visits + 3
    });
}
