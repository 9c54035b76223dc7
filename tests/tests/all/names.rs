//! Names of Redis servers, which nginx looks up while it runs.

use std::fs::File;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, UdpSocket};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use nix::libc::O_NONBLOCK;
use shortlink_tests::http;
use shortlink_tests::nginx::{Nginx, NginxOptions};
use shortlink_tests::ports;
use shortlink_tests::redis::Redis;
use shortlink_tests::stack::directory;
use shortlink_tests::wait::{SOON, eventually, pass, until};

const TARGET: &str = "https://example.com/target";

/// The longest time to connect, the look-up of the name included.
const CONNECT: Duration = Duration::from_secs(1);

/// The address 127.0.0.1 as the answer to a query.
fn answer(query: &[u8]) -> Vec<u8> {
    let mut answer = query.to_vec();
    // An answer without an error, with one record; it is about the name at byte 12.
    answer[2..4].copy_from_slice(&[0x81, 0x80]);
    answer[6..8].copy_from_slice(&[0, 1]);
    answer.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4, 127, 0, 0, 1]);
    answer
}

/// A log that blocks its writers until it is read.
fn full_pipe(path: &Path) -> File {
    let made = Command::new("mkfifo").arg(path).status();
    assert!(made.expect("mkfifo").success());
    let mut options = File::options();
    options.read(true).write(true).custom_flags(O_NONBLOCK);
    let mut pipe = options.open(path).expect("a pipe");
    while pipe.write(&[0; 4096]).is_ok() {}
    pipe
}

/// Two servers wait for the same name, and their time is over when it is answered: nginx is still in
/// its loop over the waiting ones when it calls the first.
#[test]
fn a_name_that_is_answered_when_the_time_of_two_servers_is_over_harms_nothing() {
    let directory = directory();
    let path = directory.path();
    let redis = Redis::start(&path.join("redis"), ports::free());
    redis.set_record("one", &format!("1 302 1 0 {TARGET}"));
    let names = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    names.set_read_timeout(Some(SOON)).expect("a limit");
    let resolver = names.local_addr().expect("an address").port();
    let log = path.join("blocking.log");
    let mut pipe = full_pipe(&log);
    let options = NginxOptions {
        replace: vec![
            ("worker_processes 2", "worker_processes 1".to_owned()),
            (
                "shortlink_check luhn body=7 alphabet=base62;",
                "shortlink_check none;".to_owned(),
            ),
            (
                "server_tokens off;",
                format!("resolver 127.0.0.1:{resolver} ipv6=off;"),
            ),
            (
                "location = /robots.txt {",
                format!("location = /robots.txt {{ access_log {};", log.display()),
            ),
        ],
        redis: Some(format!(
            "server localhost:{0}; replica localhost:{0};",
            redis.port
        )),
        ..NginxOptions::default()
    };
    let ports = (ports::free(), ports::free());
    let nginx = Nginx::start(&path.join("nginx"), ports, 0, ports::free(), &options);
    let workers = eventually("the worker runs", SOON, || {
        Some(nginx.workers()).filter(|workers| workers.len() == 1)
    });

    let mut query = [0; 512];
    let (length, from) = names.recv_from(&mut query).expect("a query");
    // The worker blocks, so that the answer and the end of the time come in the same turn of its loop.
    assert_eq!(http::get(nginx.public_port, "/robots.txt").status, 200);
    names
        .send_to(&answer(&query[..length]), from)
        .expect("sent");
    pass(CONNECT + Duration::from_millis(200));
    while pipe.read(&mut [0; 4096]).is_ok() {}

    until("the code is followed", SOON, || {
        http::get(nginx.public_port, "/one").location() == Some(TARGET)
    });
    assert_eq!(nginx.workers(), workers, "the worker was replaced");
    // The fallback is away.
    let known = ["lost Redis", "/resolve/one", "the fallback failed"];
    assert_eq!(nginx.complaints(&known), [""; 0]);
}

/// Answers every question for an IPv4 address with this one, as a server of names does.
fn serve_names(address: Arc<Mutex<Option<Ipv4Addr>>>) -> u16 {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    let port = socket.local_addr().expect("an address").port();
    thread::spawn(move || {
        let mut question = [0; 512];
        while let Ok((length, from)) = socket.recv_from(&mut question) {
            let asked = &question[..length];
            let mut answer = asked.to_vec();
            let is_ipv4 = asked.ends_with(&[0, 1, 0, 1]);
            let found = address.lock().expect("no panic").filter(|_| is_ipv4);
            // Flags: an answer; and whether there is such a name.
            answer[2] = 0x81;
            answer[3] = if found.is_some() || !is_ipv4 {
                0x80
            } else {
                0x83
            };
            if let Some(found) = found {
                answer[7] = 1;
                // The name of the question, an address, one second.
                answer.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 1, 0, 4]);
                answer.extend(found.octets());
            }
            let _ = socket.send_to(&answer, from);
        }
    });
    port
}

#[test]
fn a_name_is_looked_up_again_without_waiting() {
    let directory = directory();
    let mut redis = Redis::start(&directory.path().join("redis"), ports::free());
    redis.set_record("one", &format!("1 302 1 0 {TARGET}"));
    let address = Arc::new(Mutex::new(None));
    let names = serve_names(Arc::clone(&address));
    let lines = format!("server redis.invalid:{};", redis.port);
    let options = NginxOptions {
        replace: vec![(
            "shortlink_check luhn body=7 alphabet=base62;",
            format!(
                "shortlink_check none;\nresolver 127.0.0.1:{names} valid=1s ipv6=off;\n\
                 resolver_timeout 1s;"
            ),
        )],
        redis: Some(lines),
        ..NginxOptions::default()
    };
    let ports = (ports::free(), ports::free());
    let prefix = directory.path().join("nginx");
    let nginx = Nginx::start(&prefix, ports, 0, ports::free(), &options);
    let follow = |code: &str| http::get(nginx.public_port, &format!("/{code}")).status;
    // The name has no address yet: no request waits for it, and workers can end.
    until("it is logged", SOON, || {
        nginx.error_log().contains("can't be looked up")
    });
    assert_eq!(follow("one"), 503);
    nginx.reload();
    *address.lock().expect("no panic") = Some(Ipv4Addr::new(127, 0, 0, 1));
    until("Redis is asked", SOON, || follow("one") == 302);
    // Looked up again when the connection is lost.
    *address.lock().expect("no panic") = Some(Ipv4Addr::new(127, 0, 0, 7));
    redis.kill();
    until("it is lost", SOON, || {
        // It may have left a request unread: then the connection is reset.
        nginx.error_log().contains("lost Redis")
    });
    pass(Duration::from_millis(1200));
    redis.start_again();
    assert_ne!(follow("two"), 302, "no server listens at the other address");
    *address.lock().expect("no panic") = Some(Ipv4Addr::new(127, 0, 0, 1));
    until("Redis is used again", SOON, || follow("one") == 302);
    nginx.reload();
    assert_eq!(follow("one"), 302);
}
