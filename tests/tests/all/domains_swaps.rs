//! Domains are swapped, added and retired while visitors follow links on all of them. The same
//! reloads of an nginx without the module, with the same visitors, show what nginx itself does.
//!
//! `SHORTLINK_SWAPS` says how many changes of the table there are.

mod crowd;
mod scene;
mod tables;

use std::collections::HashMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use serde_json::{Value, json};
use shortlink_tests::http::{self, Connection};
use shortlink_tests::made::{Made, make_batch};
use shortlink_tests::nginx::{Nginx, NginxOptions};
use shortlink_tests::ports;
use shortlink_tests::stack::{Stack, StackOptions, text};
use shortlink_tests::visits::Account;
use shortlink_tests::wait::{SOON, until};

use crowd::Crowd;
use scene::{Outcomes, Scene, Tallies};
use tables::{Course, State, tables};

/// The default number of changes.
const SWAPS: usize = 18;

/// Number of links at the beginning; each change adds one. So many that a new worker has most of
/// them still to read.
const LINKS: usize = 2000;

/// After how many answers it goes on, so that each reload happens under load.
const ANSWERS: u64 = 150;

/// Each so many changes nginx reloads the next one while workers of the last still end.
const OVERLAP: usize = 5;

/// At each so many changes there is no sidecar.
const ALONE: usize = 3;

/// Number of changes of the table.
pub(super) fn swaps() -> usize {
    let swaps = std::env::var("SHORTLINK_SWAPS").ok();
    swaps.map_or(SWAPS, |swaps| swaps.parse().expect("SHORTLINK_SWAPS"))
}

/// Adds a port for HTTP/2 to `public.conf`.
fn with_http2(port: u16) -> NginxOptions {
    NginxOptions {
        replace: vec![(
            "client_max_body_size 1k;",
            format!("listen 127.0.0.1:{port} http2;\nclient_max_body_size 1k;"),
        )],
        ..NginxOptions::default()
    }
}

/// nginx as it is, without the module, that leads every path to a target.
fn plain_nginx(prefix: &Path, http1_port: u16, http2_port: u16) -> Nginx {
    let ports = (http1_port, ports::free());
    let mut nginx = Nginx::prepare(prefix, ports, 9, 9, &with_http2(http2_port));
    nginx.edit("nginx.conf", "load_module", "# Not here: load_module");
    for variable in ["code", "outcome", "source"] {
        nginx.edit("nginx.conf", &format!("$shortlink_{variable}"), "-");
    }
    let server = format!(
        "server {{
             listen 127.0.0.1:{http1_port} default_server reuseport;
             listen 127.0.0.1:{http2_port} http2;
             location / {{
                 add_header Referrer-Policy no-referrer always;
                 add_header X-Robots-Tag noindex always;
                 return 302 https://example.com$uri;
             }}
         }}"
    );
    fs::write(nginx.file("shortlink.conf"), server).expect("a configuration");
    nginx.start_again();
    nginx
}

/// The status on a host over a new connection; `None` when it is closed without an answer.
fn status(port: u16, host: &str, code: &str) -> Option<u16> {
    let mut connection = Connection::open(port).expect("a connection");
    let request = http::request("GET", &format!("/{code}"), &[("Host", host)], b"");
    connection.send(&request).expect("sent");
    let answer = connection.receive("GET").expect("read");
    answer.map(|answer| answer.status)
}

/// Looks at all names of a table and at those of the last tables that are not listed any more;
/// returns how many redirects there were.
fn look_at_names(stack: &Stack, course: &Course, number: usize, codes: [&str; 2]) -> u64 {
    let table = course.table(number);
    let mut names: Vec<&str> = (number.saturating_sub(8)..=number)
        .flat_map(|number| course.table(number).names())
        .collect();
    names.sort_unstable();
    names.dedup();
    let mut redirects = 0;
    for name in names {
        let expected = match table.state(name) {
            Some(State::Active | State::Serving) => Some(302),
            Some(State::Retired) => Some(410),
            None => None,
        };
        for code in codes {
            let found = status(stack.nginx.public_port, name, code);
            assert_eq!(found, expected, "{name}/{code} after change {number}");
            redirects += u64::from(found == Some(302));
        }
    }
    redirects
}

/// Creates a link to a target of its own; returns its short URL, too.
fn link(stack: &Stack, number: usize) -> (Made, String) {
    let target = format!("https://example.com/{number}?of=many");
    let made = stack.create(&json!({ "longUrl": target }));
    // While the sidecar is stopped, Redis is all that knows it.
    assert_eq!(made["published"], true);
    let code = text(&made, "shortCode");
    (Made { code, target }, text(&made, "shortUrl"))
}

fn wait_for_answers(scene: &Scene) {
    let wanted = scene.answered.load(Ordering::SeqCst) + ANSWERS;
    until("visitors are answered", SOON, || {
        scene.answered.load(Ordering::SeqCst) >= wanted
    });
}

/// Numbers of requests that each reload of one nginx has left unanswered.
#[derive(Default)]
struct Closings {
    before: u64,
    each: Vec<f64>,
}

impl Closings {
    fn note(&mut self, scene: &Scene) {
        let now = scene.closed.load(Ordering::SeqCst);
        self.each.push((now - self.before) as f64);
        self.before = now;
    }

    fn total(&self) -> f64 {
        self.each.iter().sum()
    }
}

/// Checks that nginx with the module leaves no more requests unanswered than nginx without it. Each
/// reload of one is paired with that of the other beside it. The mean of the differences may not be
/// above 0 by more than four times its standard error and a request for ten reloads. Many more
/// reloads show a small difference that this lets pass: `--nocapture` prints it.
fn assert_no_more_closed(module: &Closings, plain: &Closings) {
    let pairs = module.each.iter().zip(&plain.each);
    let differences: Vec<f64> = pairs.map(|(module, plain)| module - plain).collect();
    let count = differences.len() as f64;
    let mean = differences.iter().sum::<f64>() / count;
    let squares = differences.iter().map(|one| (one - mean).powi(2));
    let error = (squares.sum::<f64>() / (count - 1.0) / count).sqrt();
    println!(
        "{count} reloads: {} requests unanswered with the module, {} without; \
         {mean:.3} ± {error:.3} more for each",
        module.total(),
        plain.total(),
    );
    assert!(mean <= 4.0 * error + 0.1, "{:?}", module.each);
}

#[test]
fn domains_are_swapped_under_load_and_nothing_is_lost() {
    let swaps = swaps();
    let http2_port = ports::free();
    let mut stack = Stack::with(&StackOptions {
        nginx: with_http2(http2_port),
        ..StackOptions::default()
    });
    let course = Course::new(tables(swaps));
    let file = stack.nginx.file("domains.conf");
    fs::write(&file, course.table(0).text()).expect("domains.conf");
    stack.nginx.reload();
    let targets: Vec<String> = (0..LINKS)
        .map(|number| format!("https://example.com/{number}?of=many"))
        .collect();
    let headers = [("X-Api-Key", &*stack.sidecar.key)];
    let made = make_batch(stack.nginx.internal_port, &headers, &targets).made;
    let links: Vec<Made> = made.into_iter().map(|(_, made)| made).collect();
    assert_eq!(links.len(), LINKS);
    let first = links[0].code.clone();
    let paths = links.iter().map(|Made { code, .. }| Made {
        code: code.clone(),
        target: format!("https://example.com/{code}"),
    });
    let ports = (ports::free(), ports::free());
    let plain_nginx = plain_nginx(&stack.directory().join("plain"), ports.0, ports.1);
    let plain = Arc::new(Scene::new(ports, paths.collect(), None));
    let ports = (stack.nginx.public_port, http2_port);
    let scene = Arc::new(Scene::new(ports, links, Some(course)));
    let course = scene.course.as_ref().expect("tables");

    let crowds = (Crowd::start(&scene), Crowd::start(&plain));
    let (mut closings, mut plain_closings) = (Closings::default(), Closings::default());
    wait_for_answers(&scene);
    wait_for_answers(&plain);
    let mut looked = 0;
    let (mut old, mut plain_old) = (Vec::new(), Vec::new());
    for number in 1..=swaps {
        let overlaps = number % OVERLAP == 0 && number < swaps;
        // Links in Redis redirect without the sidecar, also while nginx reloads.
        let is_alone = number % ALONE == 0 && !overlaps;
        if is_alone {
            assert_eq!(stack.sidecar.stop(), Some(0));
        }
        // In turn, since the first of the two may find the machine in another state.
        for is_plain in [number % 2 == 0, number % 2 != 0] {
            if is_plain {
                plain_old.extend(plain_nginx.begin_reload());
                if !overlaps {
                    plain_nginx.wait_for_end_of(&std::mem::take(&mut plain_old));
                    wait_for_answers(&plain);
                }
                plain_closings.note(&plain);
                continue;
            }
            course.begin(number);
            fs::write(&file, course.table(number).text()).expect("domains.conf");
            old.extend(stack.nginx.begin_reload());
            if !overlaps {
                stack.nginx.wait_for_end_of(&std::mem::take(&mut old));
                course.finish(number);
                wait_for_answers(&scene);
            }
            closings.note(&scene);
        }
        if overlaps {
            continue;
        }

        if is_alone {
            stack.sidecar.start_again();
        }
        let (made, short_url) = link(&stack, LINKS + number);
        let table = course.table(number);
        assert_eq!(short_url, table.short_url(&made.code));
        let known = stack.api("GET", &format!("/v1/links/{first}"), None);
        assert_eq!(text(&known.json(), "shortUrl"), table.short_url(&first));
        looked += look_at_names(&stack, course, number, [&first, &made.code]);
        scene.links.write().expect("no holder panics").push(made);
        assert_eq!(scene.faults(), (0, Vec::new()), "after change {number}");
    }
    let tallies = crowds.0.end();
    crowds.1.end();

    assert_eq!(scene.faults(), (0, Vec::new()));
    assert_eq!(plain.faults(), (0, Vec::new()));
    assert_visits(&stack, &tallies, looked, &first);
    for (name, scene) in [("with", &scene), ("without", &plain)] {
        let over_http2 = scene.closed_over_http2.load(Ordering::SeqCst);
        println!("{name} the module, {over_http2} of these over HTTP/2");
    }
    assert_no_more_closed(&closings, &plain_closings);
    assert_eq!(stack.nginx.complaints(&[]), [""; 0]);
    let log = stack.nginx.error_log();
    assert!(!log.contains("open socket"), "{log}");
}

/// Returns the number of batches of visits that wait to be stored, if the sidecar knows.
fn waiting(stack: &Stack) -> Option<u64> {
    let page = String::from_utf8(http::get(stack.sidecar.port, "/metrics").body).ok()?;
    let line = page
        .lines()
        .find_map(|line| line.strip_prefix("shortlink_visit_queue_batches "))?;
    line.trim().parse().ok()
}

/// Checks that SQL has each redirect that a visitor got, and no more than were asked for; `looked`
/// is how many redirects the test itself got.
fn assert_visits(stack: &Stack, tallies: &Tallies, looked: u64, first: &str) {
    let account = || {
        let page = http::get(stack.nginx.internal_port, "/edge/metrics");
        Account::of(&String::from_utf8(page.body).expect("text"))
    };
    until("Redis has all visits", SOON, || account().held == 0);
    until("all of them are stored", SOON, || waiting(stack) == Some(0));
    let told = account();
    assert_eq!((told.dropped, told.lost, told.in_files), (0, 0, 0));

    let headers = [
        ("X-Api-Key", &*stack.sidecar.key),
        ("Accept", "application/x-ndjson"),
    ];
    let export = http::send(stack.sidecar.port, "GET", "/v1/visits", &headers);
    let export = String::from_utf8(export.body).expect("text");
    let mut stored: HashMap<[String; 3], u64> = HashMap::new();
    let mut count = 0;
    for line in export.lines() {
        let visit: Value = serde_json::from_str(line).expect("JSON");
        assert_eq!(visit["status"], 302, "{visit}");
        let place = ["userAgent", "domain", "shortCode"].map(|member| text(&visit, member));
        *stored.entry(place).or_default() += 1;
        count += 1;
    }
    let mut all = Outcomes::default();
    for (visitor, tally) in tallies {
        for ((host, code), outcomes) in tally {
            let place = [crowd::name(*visitor), host.clone(), code.clone()];
            let stored = stored.get(&place).copied().unwrap_or_default();
            // A visit without an answer may have been on its way.
            let possible = outcomes.redirected..=outcomes.redirected + outcomes.unanswered;
            assert!(
                possible.contains(&stored),
                "{place:?}: {stored}, {outcomes:?}"
            );
            all.redirected += outcomes.redirected;
            all.unanswered += outcomes.unanswered;
        }
    }
    println!(
        "{} redirects, {looked} more by the test, {} requests unanswered, {count} visits in SQL",
        all.redirected, all.unanswered
    );
    let answered = all.redirected + looked;
    assert!((answered..=answered + all.unanswered).contains(&count));
    assert_eq!(told.total, count);
    let counted = stack.api("GET", "/v1/stats", None).json()["visits"]["total"].clone();
    assert_eq!(counted, count, "what is counted is what is stored");
    let of_first = stack
        .api("GET", &format!("/v1/links/{first}/stats"), None)
        .json();
    let listed = stored.iter().filter(|([_, _, code], _)| code == first);
    let listed: u64 = listed.map(|(_, count)| count).sum();
    assert_eq!(of_first["visits"]["total"], listed);
}
