//! No visit is lost or in a redirect's way, whatever is lost, or it is counted.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use shortlink_tests::http::{self, Connection};
use shortlink_tests::metrics::Page;
use shortlink_tests::process::signal;
use shortlink_tests::site::{Site, SiteOptions};
use shortlink_tests::stack::directory_in_memory;
use shortlink_tests::visits::names;
use shortlink_tests::wait::{OverAtEnd, SOON, until};
use vocabulary::visit::evidence::VisitEvidence;
use vocabulary::visit::{VisitEvent, VisitId, VisitMethod};

use crate::visits::{SERVER, STREAM, account, follow, patient_site, site, stored, wait_for_names};

#[test]
fn no_visit_is_lost_while_redis_is_killed_and_back() {
    let mut site = site("on batch=10 interval=20ms");
    follow(&site, 100);
    wait_for_names(&site, 100);
    until("they are counted as stored", SOON, || {
        account(&site).stored == 100
    });
    site.redis.kill();
    follow(&site, 500);
    let told = account(&site);
    assert_eq!((told.total, told.held), (600, 500));
    site.redis.start_again();
    let names = wait_for_names(&site, 600);
    let origins: BTreeSet<u64> = names.iter().map(|(origin, _)| *origin).collect();
    assert_eq!(origins.len(), 1);
    let sequences: Vec<u64> = names.iter().map(|(_, sequence)| *sequence).collect();
    assert_eq!(sequences, (0..600).collect::<Vec<_>>());
    until("they are counted as stored", SOON, || {
        account(&site).stored == 600
    });
    site.assert_sound(&["lost Redis"]);
}

#[test]
fn a_redis_that_still_loads_its_data_gets_the_visits_when_it_has() {
    let mut site = site("on batch=10 interval=20ms");
    // Redis looks at its connections after each 1024 commands that it has loaded; all of them take it
    // longer than any worker waits before it tries again.
    site.redis.command(&[
        "EVAL",
        "for number = 1, 8000 do redis.call('SET', 'other:' .. number, '') end",
        "0",
    ]);
    follow(&site, 10);
    wait_for_names(&site, 10);
    site.redis.kill();
    follow(&site, 100);
    site.redis.start_loading(Duration::from_micros(500));
    until("visits are refused", SOON, || {
        site.nginx.error_log().contains("is still loading its data")
    });
    site.redis.wait_until_loaded();
    wait_for_names(&site, 110);
    site.assert_sound(&["lost Redis"]);
}

#[test]
fn a_redis_that_hangs_delays_no_redirect_and_gets_every_visit_later() {
    let site = patient_site("on batch=10 interval=20ms");
    follow(&site, 20);
    site.redis.hang();
    let begin = Instant::now();
    let mut slowest = Duration::ZERO;
    while begin.elapsed() < Duration::from_secs(2) {
        let before = Instant::now();
        follow(&site, 10);
        slowest = slowest.max(before.elapsed());
    }
    // Ten at once; one that waited for Redis would take ten seconds.
    assert!(slowest < Duration::from_secs(5), "{slowest:?}");
    let total = account(&site).total;
    site.redis.go_on();
    wait_for_names(&site, usize::try_from(total).expect("a number"));
    until("they are counted as stored", SOON, || {
        account(&site).stored == total
    });
    site.assert_sound(&["lost Redis"]);
}

#[test]
fn a_redis_without_memory_refuses_visits_and_gets_them_later() {
    let site = site("on batch=10 interval=20ms");
    follow(&site, 20);
    wait_for_names(&site, 20);
    site.redis.command(&["CONFIG", "SET", "maxmemory", "1"]);
    follow(&site, 100);
    until("visits are refused", SOON, || {
        site.nginx.error_log().contains("takes no visits (OOM")
    });
    assert_eq!(account(&site).held, 100);
    site.redis.command(&["CONFIG", "SET", "maxmemory", "0"]);
    wait_for_names(&site, 120);
    assert_eq!(site.nginx.error_log().matches("takes no visits").count(), 1);
    site.assert_sound(&["takes no visits"]);
}

#[test]
fn a_redis_that_refuses_visits_keeps_no_worker_from_ending() {
    let mut site = site("on batch=10 interval=20ms");
    let timeout = "worker_shutdown_timeout ";
    site.nginx.edit(
        "nginx.conf",
        &format!("{timeout}5s"),
        &format!("{timeout}60s"),
    );
    site.nginx.reload_with(1);
    site.redis.command(&["CONFIG", "SET", "maxmemory", "1"]);
    follow(&site, 50);
    until("visits are refused", SOON, || {
        site.nginx.error_log().contains("takes no visits (OOM")
    });
    // Before worker_shutdown_timeout, and before this loses its patience.
    site.nginx.quit();
    assert!(site.nginx.error_log().contains("50 were not confirmed"));
}

#[test]
fn beyond_the_buffer_visits_are_dropped_and_counted() {
    let mut site = site("on bytes=8k buffer=64k interval=20ms");
    follow(&site, 10);
    wait_for_names(&site, 10);
    site.redis.kill();
    follow(&site, 3000);
    let told = account(&site);
    assert!(told.dropped > 1000 && told.held > 200, "{told:?}");
    assert_eq!(told.in_files, 0);
    site.redis.start_again();
    let kept = told.total - told.dropped;
    wait_for_names(&site, usize::try_from(kept).expect("a number"));
    until("they are counted as stored", SOON, || {
        account(&site).stored == kept
    });
    site.assert_sound(&["lost Redis", "visits are dropped"]);
}

#[test]
fn beyond_the_buffer_visits_go_to_files_and_come_back() {
    let memory = directory_in_memory();
    let spool = memory.path().join("spool");
    let spool_files = || files(&spool);
    let mut site = site(&format!(
        "on bytes=8k buffer=64k interval=20ms spool={}",
        spool.display()
    ));
    follow(&site, 10);
    wait_for_names(&site, 10);
    site.redis.kill();
    follow(&site, 6000);
    let told = account(&site);
    assert_eq!(told.dropped, 0);
    assert!(told.in_files > 3000, "{told:?}");
    assert_eq!(told_files(&site), (spool_files().len() as f64, 128.0));
    site.redis.start_again();
    wait_for_names(&site, 6010);
    until("all are stored", SOON, || {
        let told = account(&site);
        (told.stored, told.held, told.in_files) == (6010, 0, 0)
    });
    until("no file is left", SOON, || spool_files().is_empty());
    until("the metric shows that", SOON, || told_files(&site).0 == 0.0);
    site.assert_sound(&["lost Redis"]);
}

/// The number of files and its limit, as the edge's metrics show them.
fn told_files(site: &Site) -> (f64, f64) {
    let page = site.get("/metrics").body;
    let page = Page::read(&String::from_utf8(page).expect("text"));
    (
        page.sum("shortlink_spool_files"),
        page.sum("shortlink_spool_files_most"),
    )
}

fn spool_files(site: &Site) -> Vec<u64> {
    files(&site.nginx.file("spool"))
}

/// The lengths of the files of a directory.
fn files(directory: &Path) -> Vec<u64> {
    std::fs::read_dir(directory)
        .expect("the directory")
        .map(|entry| entry.expect("an entry").metadata().expect("a file").len())
        .collect()
}

#[test]
fn without_a_place_for_files_visits_are_dropped_and_counted() {
    let mut site = site("on bytes=8k buffer=64k interval=20ms spool=spool");
    follow(&site, 10);
    wait_for_names(&site, 10);
    std::fs::remove_dir_all(site.nginx.file("spool")).expect("the directory");
    site.redis.kill();
    follow(&site, 3000);
    let told = account(&site);
    assert!(told.dropped > 1000 && told.in_files == 0, "{told:?}");
    site.redis.start_again();
    let kept = told.total - told.dropped;
    wait_for_names(&site, usize::try_from(kept).expect("a number"));
    site.assert_sound(&["lost Redis", "visits are dropped", "spool: No such file"]);
}

#[test]
fn a_file_that_ends_anywhere_is_sent_as_far_as_it_can_be_read() {
    let mut site = site("on interval=20ms spool=spool");
    follow(&site, 1);
    site.nginx.quit();
    let mut frames = b"SLVISIT1\x10\0\0\0\0\0\0\0".to_vec();
    for sequence in 0..3 {
        let id = VisitId {
            origin: 7,
            sequence,
        };
        let event = VisitEvent {
            id,
            time_ms: 1,
            status: 302,
            method: VisitMethod::Get,
            code: b"one",
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
        event.write(&mut frames);
    }
    // Its writer was killed while it wrote the last.
    site.write_bytes("spool/a.visits", &frames[..frames.len() - 3]);
    // Its writer was killed at once.
    site.write_bytes("spool/b.visits", &frames[..5]);
    // Two were sent by a worker that was killed then; behind the third the disk has gone wrong.
    let one = (frames.len() - 16) / 3;
    let mut broken = frames.clone();
    broken[8] = u8::try_from(16 + 2 * one).expect("a short file");
    broken.extend_from_slice(&[0xff; 5000]);
    site.write_bytes("spool/c.visits", &broken);
    // None of ours.
    site.write_bytes("spool/d.visits", b"something else that is long enough");
    site.nginx.start_again();
    let names = wait_for_names(&site, 4);
    let ours: Vec<_> = names.iter().filter(|(origin, _)| *origin == 7).collect();
    assert_eq!(ours, [&(7, 0), &(7, 1), &(7, 2)]);
    until("the files are gone or put aside", SOON, || {
        let files = std::fs::read_dir(site.nginx.file("spool")).expect("the directory");
        let mut files: Vec<_> = files
            .map(|file| file.expect("an entry").file_name().into_string())
            .collect();
        files.sort();
        files == [Ok("c.unreadable".to_owned()), Ok("d.visits".to_owned())]
    });
    assert_eq!(account(&site).stored, 3);
    assert_eq!(
        site.nginx.complaints(&["visits can't be read back"]),
        [""; 0]
    );
}

#[test]
fn files_keep_their_bound() {
    let mut site = site("on bytes=8k buffer=64k interval=20ms spool=spool spool_size=1m");
    follow(&site, 10);
    wait_for_names(&site, 10);
    site.redis.kill();
    let agent = "x".repeat(500);
    let headers = [("User-Agent", &*agent), ("Referer", &*agent)];
    let request = http::request("GET", "/one", &headers, b"");
    let mut connection = Connection::open(site.nginx.public_port).expect("a connection");
    for _ in 0..990 {
        connection.send(&request).expect("sent");
        connection.receive("GET").expect("read").expect("an answer");
    }
    let told = account(&site);
    assert!(told.dropped > 0 && told.in_files > 500, "{told:?}");
    assert!(spool_files(&site).iter().sum::<u64>() <= 1 << 20);
    site.redis.start_again();
    let kept = told.total - told.dropped;
    wait_for_names(&site, usize::try_from(kept).expect("a number"));
    site.assert_sound(&["lost Redis", "visits are dropped"]);
}

#[test]
fn a_killed_worker_loses_what_it_held_and_the_numbers_say_so() {
    let site = site("on batch=100 interval=60s");
    follow(&site, 250);
    wait_for_names(&site, 200);
    for round in 1..=3 {
        until("all are recorded", SOON, || account(&site).held == 50);
        let worker = site.nginx.workers()[0];
        signal(worker, Signal::SIGKILL);
        until("the worker is replaced", SOON, || {
            let now = site.nginx.workers();
            now.len() == 1 && now[0] != worker
        });
        until("what was lost is counted", SOON, || {
            let told = account(&site);
            told.lost == 50 * round && told.held == 0
        });
        follow(&site, 50);
    }
    wait_for_names(&site, 200);
}

#[test]
fn files_of_killed_workers_are_sent_by_others_once() {
    let mut site = Site::with(&SiteOptions {
        visits: "on bytes=8k buffer=64k interval=20ms spool=spool",
        server: SERVER,
        cache: "1m stale=10m",
        budget: "1s",
        workers: 4,
        ..SiteOptions::default()
    });
    let before = site.redis.reads();
    until("the workers keep the link", SOON, || {
        follow(&site, 20);
        site.redis.reads() >= before + 8
    });
    until("all are stored", SOON, || account(&site).held == 0);
    site.redis.kill();
    // Whichever worker has a connection: all write.
    for _ in 0..16 {
        follow(&site, 800);
    }
    let told = account(&site);
    assert!(told.in_files > 0, "{told:?}");
    let old = site.nginx.workers();
    for worker in &old {
        signal(*worker, Signal::SIGKILL);
    }
    until("the workers are replaced", SOON, || {
        let now = site.nginx.workers();
        now.len() == 4 && now.iter().all(|worker| !old.contains(worker))
    });
    until("what was lost is counted", SOON, || {
        account(&site).held == 0
    });
    let told = account(&site);
    let before = told.stored;
    let in_files = u64::try_from(told.in_files).expect("a number");
    site.redis.start_again();
    until("the files are sent", 2 * SOON, || {
        account(&site).in_files == 0
    });
    assert_eq!(account(&site).stored, before + in_files);
    let names = names(site.redis.port, STREAM);
    assert_eq!(names.len() as u64, before + in_files);
    // Each by one worker: nothing was sent twice.
    assert_eq!(stored(&site).len(), names.len());
}

#[test]
fn a_reload_under_load_loses_no_visit() {
    let site = patient_site("on batch=100 interval=500ms");
    let port = site.nginx.public_port;
    std::thread::scope(|scope| {
        let clients: Vec<_> = (0..4)
            .map(|_| {
                scope.spawn(move || {
                    for _ in 0..400 {
                        let answer = http::get(port, "/one");
                        assert_eq!(answer.status, 302);
                    }
                })
            })
            .collect();
        while clients.iter().any(|client| !client.is_finished()) {
            site.nginx.reload_with(1);
        }
    });
    wait_for_names(&site, 1600);
    until("they are counted as stored", SOON, || {
        account(&site).stored == 1600
    });
    let told = account(&site);
    assert_eq!((told.dropped, told.lost, told.held), (0, 0, 0));
    assert_eq!(site.nginx.complaints(&[]), [""; 0]);
}

#[test]
fn the_numbers_add_up_whatever_is_killed() {
    let memory = directory_in_memory();
    let spool = memory.path().join("spool");
    let visits = "on batch=20 bytes=4k buffer=64k interval=50ms";
    let mut site = Site::with(&SiteOptions {
        visits: &format!("{visits} spool={}", spool.display()),
        // For a worker that has not seen Redis yet.
        server: "location / { shortlink; shortlink_fallback @fallback; }
                 location @fallback { return 302 https://example.com/one; }
                 location = /metrics { shortlink_status; }",
        cache: "1m stale=10m",
        budget: "1s",
        workers: 2,
        ..SiteOptions::default()
    });
    let port = site.nginx.public_port;
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let end = OverAtEnd(&over);
        for _ in 0..2 {
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    // A worker that is killed answers nothing.
                    let request = http::request("GET", "/one", &[], b"");
                    if let Ok(answer) = http::try_send(port, "GET", &request) {
                        assert_eq!(answer.status, 302);
                    }
                }
            });
        }
        let wait = |site: &Site, more: u64| {
            let before = account(site).total;
            until("more visits come", SOON, || {
                account(site).total > before + more
            });
        };
        for round in 0..4 {
            wait(&site, 200);
            site.redis.kill();
            wait(&site, 1500);
            let workers = site.nginx.workers();
            signal(workers[round % workers.len()], Signal::SIGKILL);
            until("the worker is replaced", SOON, || {
                let now = site.nginx.workers();
                now.len() == 2 && now != workers
            });
            wait(&site, 200);
            if round % 2 == 0 {
                site.nginx.reload();
            }
            site.redis.start_again();
        }
        drop(end);
    });
    until("all is stored", 2 * SOON, || {
        let told = account(&site);
        (told.held, told.in_files) == (0, 0)
    });
    let told = account(&site);
    assert!(told.lost > 0 && told.stored > told.lost, "{told:?}");
    assert_eq!(told.dropped, 0, "{told:?}");
    // Visits lost with a worker may have reached Redis just before, and nothing else is missing.
    let there = names(site.redis.port, STREAM).len() as u64;
    assert!(
        there >= told.stored && there <= told.total,
        "{there} {told:?}"
    );
    until("no file is left", SOON, || files(&spool).is_empty());
}

#[test]
fn a_worker_that_ends_without_redis_writes_its_visits_to_a_file() {
    let mut site = site("on batch=100 interval=60s spool=spool");
    follow(&site, 50);
    site.redis.kill();
    follow(&site, 50);
    site.nginx.quit();
    assert_eq!(spool_files(&site).len(), 1);
    site.redis.start_again();
    site.nginx.start_again();
    wait_for_names(&site, 100);
    until("no file is left", SOON, || spool_files(&site).is_empty());
    let told = account(&site);
    assert_eq!((told.total, told.stored, told.in_files), (0, 100, -100));
}

#[test]
fn a_stream_that_is_none_is_complained_of_and_nothing_is_lost() {
    let site = site("on batch=10 interval=20ms");
    site.redis.command(&["SET", STREAM, "no stream"]);
    follow(&site, 30);
    until("it is logged", SOON, || {
        site.nginx
            .error_log()
            .contains("takes no visits (WRONGTYPE")
    });
    site.redis.command(&["DEL", STREAM]);
    wait_for_names(&site, 30);
    site.assert_sound(&["takes no visits"]);
}
