//! Codes are followed.

use std::time::Duration;

use serde_json::json;
use shortlink_tests::calendar::format_time;
use shortlink_tests::http::{self, Connection};
use shortlink_tests::nginx::NginxOptions;
use shortlink_tests::stack::{Stack, StackOptions, text};
use shortlink_tests::wait::{SOON, until};
use vocabulary::{Check, CheckKeys, CodeRules};

const TARGET: &str = "https://www.example.com/path;p?q=1&r=%20a#fragment";

#[test]
fn a_made_link_redirects_without_a_body() {
    let stack = Stack::shared();
    let made = stack.create(&json!({ "longUrl": TARGET }));
    assert_eq!(made["published"], true);
    let code = text(&made, "shortCode");
    let base = format!("http://localhost:{}", stack.nginx.public_port);
    assert_eq!(text(&made, "shortUrl"), format!("{base}/{code}"));

    let answer = stack.follow(&code);
    assert_eq!(answer.status, 302);
    assert_eq!(answer.location(), Some(TARGET));
    assert_eq!(answer.header("Content-Length"), Some("0"));
    assert_eq!(answer.header("Cache-Control"), Some("no-store"));
    assert_eq!(answer.header("X-Edge"), Some("redirect/redis"));
    assert!(answer.body.is_empty());

    let head = http::send(stack.nginx.public_port, "HEAD", &format!("/{code}"), &[]);
    assert_eq!((head.status, head.location()), (302, Some(TARGET)));
    // The query of a visit is ignored.
    assert_eq!(
        stack.follow(&format!("{code}?utm=x")).location(),
        Some(TARGET)
    );
    assert_eq!(stack.nginx.complaints(&[]), [""; 0]);
}

#[test]
fn a_followed_code_can_be_watched_in_redis() {
    let stack = Stack::shared();
    let code = stack.link(TARGET);
    let mut monitor = stack.redis.monitor();
    assert_eq!(stack.follow(&code).status, 302);
    monitor.wait_for(&format!("\"GET\" \"sl:l:{code}\""));
}

#[test]
fn redis_may_stand_behind_a_unix_socket_with_another_prefix_and_database() {
    let mut stack = Stack::start();
    let socket = stack.redis.socket();
    stack.nginx.edit(
        "shortlink.conf",
        "prefix   sl:;",
        &format!("prefix eu/shop:; database 7; # {}", socket.display()),
    );
    let tcp = format!("server   127.0.0.1:{};", stack.redis.port);
    stack.nginx.edit(
        "shortlink.conf",
        &tcp,
        &format!("server unix:{};", socket.display()),
    );
    stack.nginx.reload();
    assert_eq!(stack.sidecar.stop(), Some(0));
    stack.sidecar.edit_config(
        &format!("url = \"redis://127.0.0.1:{}/0\"", stack.redis.port),
        &format!(
            "url = \"redis+unix://{}?db=7\"\nprefix = \"eu/shop:\"",
            socket.display()
        ),
    );
    stack.sidecar.start_again();
    let made = stack.create(&json!({ "longUrl": TARGET }));
    assert_eq!(made["published"], true);
    let answer = stack.follow(&text(&made, "shortCode"));
    assert_eq!(
        (answer.location(), answer.header("X-Edge")),
        (Some(TARGET), Some("redirect/redis"))
    );
    assert_eq!(stack.redis.keys(), 0);
    // The socket goes away and comes back.
    let code = text(&made, "shortCode");
    stack.redis.kill();
    assert_eq!(
        stack.follow(&code).header("X-Edge"),
        Some("unavailable/fallback")
    );
    stack.redis.start_again();
    until("Redis is used again", SOON, || {
        stack.follow(&code).header("X-Edge") == Some("redirect/redis")
    });
    assert_eq!(stack.nginx.complaints(&["lost Redis"]), [""; 0]);
}

#[test]
fn every_redirect_status_is_the_links_own() {
    let stack = Stack::shared();
    for status in [301, 302, 307, 308] {
        let made = stack.create(&json!({ "longUrl": TARGET, "redirectStatus": status }));
        let code = text(&made, "shortCode");
        let no_store = [302, 307].contains(&status).then_some("no-store");
        for source in ["redirect/redis", "miss/fallback"] {
            let answer = stack.follow(&code);
            assert_eq!(
                (answer.status, answer.location()),
                (status, Some(TARGET)),
                "{source}"
            );
            assert_eq!(
                answer.header("Cache-Control"),
                no_store,
                "{status} {source}"
            );
            assert_eq!(answer.header("X-Edge"), Some(source));
            stack.redis.command(&["DEL", &format!("sl:l:{code}")]);
        }
    }
}

#[test]
fn the_longest_target_comes_back_byte_for_byte() {
    let stack = Stack::shared();
    let longest = format!("https://example.com/{}", "a".repeat(8192 - 20));
    let answer = stack.follow(&stack.link(&longest));
    assert_eq!(
        (answer.location(), answer.header("X-Edge")),
        (Some(&*longest), Some("redirect/redis"))
    );
}

#[test]
fn requests_share_connections_in_order() {
    let stack = Stack::shared();
    let codes: Vec<String> = (0..20)
        .map(|number| stack.link(&format!("https://example.com/{number}")))
        .collect();
    let mut connection = Connection::open(stack.nginx.public_port).expect("a connection");
    // All at once, then one by one; a miss and a refusal between them.
    let mut pipelined = Vec::new();
    for code in &codes {
        pipelined.extend(http::request("GET", &format!("/{code}"), &[], b""));
        pipelined.extend(http::request("GET", "/nosuchone", &[], b""));
    }
    connection.send(&pipelined).expect("sent");
    for number in 0..codes.len() {
        let answer = connection.receive("GET").expect("read").expect("an answer");
        assert_eq!(
            answer.location(),
            Some(&*format!("https://example.com/{number}"))
        );
        let answer = connection.receive("GET").expect("read").expect("an answer");
        assert_eq!(answer.status, 404);
    }
    for (number, code) in codes.iter().enumerate() {
        connection
            .send(&http::request("GET", &format!("/{code}"), &[], b""))
            .expect("sent");
        let answer = connection.receive("GET").expect("read").expect("an answer");
        assert_eq!(
            answer.location(),
            Some(&*format!("https://example.com/{number}"))
        );
    }
    // HTTP/1.0, which closes the connection.
    let mut connection = Connection::open(stack.nginx.public_port).expect("a connection");
    let request = format!("GET /{} HTTP/1.0\r\nHost: localhost\r\n\r\n", codes[0]);
    connection.send(request.as_bytes()).expect("sent");
    let all = String::from_utf8(connection.receive_all().expect("read")).expect("text");
    assert!(all.contains("Location: https://example.com/0\r\n"), "{all}");
    assert_eq!(stack.nginx.complaints(&[]), [""; 0]);
}

#[test]
fn other_methods_are_not_allowed() {
    let stack = Stack::shared();
    let code = stack.link(TARGET);
    for method in ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "FOO"] {
        let answer = http::send(stack.nginx.public_port, method, &format!("/{code}"), &[]);
        assert_eq!(answer.status, 405, "{method}");
        assert_eq!(answer.header("Allow"), Some("GET, HEAD"), "{method}");
    }
}

#[test]
fn glued_text_is_left_away() {
    let stack = Stack::shared();
    let code = stack.link(TARGET);
    for glued in [
        "。",
        "，回T退订",
        "；",
        ".",
        ",",
        ")",
        "\"",
        "/",
        "/x",
        "%E3%80%82",
        "-",
        "...",
    ] {
        let answer = stack.follow(&format!("{code}{glued}"));
        assert_eq!(
            (answer.status, answer.location()),
            (302, Some(TARGET)),
            "{glued}"
        );
    }
    // Letters and digits are never left away.
    for glued in ["a", "7", "T退订"] {
        assert_eq!(
            stack.follow(&format!("{code}{glued}")).status,
            404,
            "{glued}"
        );
    }
}

#[test]
fn an_unknown_code_is_remembered_for_a_while() {
    let stack = Stack::with(&StackOptions {
        sidecar: "[links]\nnegative_ttl_s = 30".to_owned(),
        ..StackOptions::default()
    });
    let answer = stack.follow("nosuchone");
    assert_eq!(
        (answer.status, answer.header("X-Edge")),
        (404, Some("miss/fallback"))
    );
    until("the negative record is there", SOON, || {
        stack.redis.record("nosuchone") == Some(stack.redis.negative())
    });
    let ttl: i64 = stack
        .redis
        .command(&["TTL", "sl:l:nosuchone"])
        .parse()
        .expect("a number");
    assert!((1..=30).contains(&ttl), "{ttl}");
    until("Redis is current", SOON, || {
        let answer = stack.follow("nosuchone");
        assert_eq!(answer.status, 404);
        answer
            .header("X-Edge")
            .is_some_and(|it| it.starts_with("unknown/"))
    });
    // Making it ends that, long before the record would end; workers learn of it after the answer.
    stack.create(&json!({ "longUrl": TARGET, "customSlug": "nosuchone" }));
    until("the new link redirects", SOON, || {
        stack.follow("nosuchone").location() == Some(TARGET)
    });
}

#[test]
fn a_code_that_can_not_be_is_refused_without_asking_redis() {
    let stack = Stack::start();
    let code = stack.link(TARGET);
    let (body, check) = code.split_at(7);
    let wrong = if check == "a" { "b" } else { "a" };
    let gets = stack.redis.reads();
    for (path, edge) in [
        (format!("{body}{wrong}"), "wrong_check/none"),
        (format!("{body}{wrong}。"), "wrong_check/none"),
        (".x".to_owned(), "malformed/none"),
        ("~abc".to_owned(), "malformed/none"),
        ("a".repeat(65), "malformed/none"),
        ("é".to_owned(), "malformed/none"),
    ] {
        let answer = stack.follow(&path);
        assert_eq!(
            (answer.status, answer.header("X-Edge")),
            (404, Some(edge)),
            "{path}"
        );
    }
    assert_eq!(stack.redis.reads(), gets);
}

#[test]
fn a_link_expires_by_itself() {
    let stack = Stack::shared();
    let seconds = stack.redis.now() + 3;
    let until_then = format_time(seconds);
    let made = stack.create(&json!({ "longUrl": TARGET, "validUntil": until_then }));
    let code = text(&made, "shortCode");
    let early = stack.follow(&code).status;
    assert!(early == 302 || stack.redis.now() >= seconds, "{early}");
    // Only the edge decides: Redis still has the record.
    let record = stack.redis.record(&code).expect("a record");
    assert_eq!(record, format!("1 302 1 {seconds} {TARGET}"));
    until("the link is gone", Duration::from_secs(10), || {
        let answer = stack.follow(&code);
        let edge = answer.header("X-Edge");
        answer.status == 410 && (edge == Some("gone/redis") || edge == Some("gone/cache"))
    });
    stack.redis.command(&["DEL", &format!("sl:l:{code}")]);
    until("SQL knows it too", SOON, || {
        let answer = stack.follow(&code);
        assert_eq!(answer.status, 410);
        answer.header("X-Edge") == Some("miss/fallback")
    });
}

#[test]
fn keyed_codes_survive_a_rotation_of_keys_and_end_with_their_key() {
    const OLD: &str = "000102030405060708090a0b0c0d0e0f";
    const NEW: &str = "f0e1d2c3b4a5968778695a4b3c2d1e0f";
    let keys = shortlink_tests::stack::directory();
    let file = keys.path().join("check-keys");
    std::fs::write(&file, format!("# the first key\n{OLD}\n")).expect("a key file");
    let mut stack = Stack::with(&StackOptions {
        sidecar: format!(
            "[codes]\ncheck = \"keyed\"\ncheck_keys_file = \"{}\"",
            file.display()
        ),
        nginx: NginxOptions {
            replace: vec![(
                "shortlink_check luhn body=7 alphabet=base62;",
                format!("shortlink_check keyed body=7 keys={};", file.display()),
            )],
            ..NginxOptions::default()
        },
        ..StackOptions::default()
    });
    let rules = |text: &str| CodeRules {
        check: Check::Keyed(CheckKeys::parse(text.as_bytes()).expect("keys")),
        ..CodeRules::default()
    };
    let first = stack.link(TARGET);
    let body = &first.as_bytes()[..7];
    assert_eq!(rules(OLD).complete(body).expect("a code").as_str(), first);
    assert_eq!(stack.follow(&first).status, 302);

    // Accepted everywhere before a sidecar issues codes with it.
    std::fs::write(&file, format!("{OLD}\n{NEW}\n")).expect("a key file");
    stack.nginx.reload();
    assert_eq!(stack.sidecar.stop(), Some(0));
    stack.sidecar.start_again();
    let between = stack.link(TARGET);
    let body = &between.as_bytes()[..7];
    assert_eq!(rules(OLD).complete(body).expect("a code").as_str(), between);

    std::fs::write(&file, format!("{NEW}\n{OLD}\n")).expect("a key file");
    assert_eq!(stack.sidecar.stop(), Some(0));
    stack.sidecar.start_again();
    let second = stack.link(TARGET);
    let body = &second.as_bytes()[..7];
    assert_eq!(rules(NEW).complete(body).expect("a code").as_str(), second);
    assert_eq!(
        (stack.follow(&first).status, stack.follow(&second).status),
        (302, 302)
    );
    assert_eq!(stack.follow(&between).status, 302);

    std::fs::write(&file, NEW).expect("a key file");
    stack.nginx.reload();
    assert_eq!(stack.follow(&second).status, 302);
    let both = rules(NEW).judge(&first.parse().expect("a code"));
    let expected = if both == vocabulary::Verdict::WrongCheck {
        404
    } else {
        302
    };
    assert_eq!(stack.follow(&first).status, expected);
}

#[test]
fn keyed_codes_outlive_the_loss_of_their_keys() {
    let keys = shortlink_tests::stack::directory();
    let file = keys.path().join("check-keys").display().to_string();
    std::fs::write(&file, "000102030405060708090a0b0c0d0e0f\n").expect("a key file");
    let keyed = format!("check = \"keyed\"\ncheck_keys_file = \"{file}\"");
    let check = format!("shortlink_check keyed body=7 keys={file};");
    let mut stack = Stack::with(&StackOptions {
        sidecar: format!("[codes]\n{keyed}"),
        nginx: NginxOptions {
            replace: vec![(
                "shortlink_check luhn body=7 alphabet=base62;",
                check.clone(),
            )],
            ..NginxOptions::default()
        },
        ..StackOptions::default()
    });
    let codes: Vec<String> = (0..50).map(|_| stack.link(TARGET)).collect();
    std::fs::remove_file(&file).expect("a key file");
    // The former check character is one of the code's now.
    let without = "check = \"none\"\nbody_length = 8\nlongest_body_length = 9";
    stack.sidecar.edit_config(&keyed, without);
    assert_eq!(stack.sidecar.stop(), Some(0));
    stack.sidecar.start_again();
    let none = "shortlink_check none body=8;";
    stack.nginx.edit("shortlink.conf", &check, none);
    stack.nginx.reload();
    for code in &codes {
        assert_eq!(stack.follow(code).location(), Some(TARGET));
    }
    let made: Vec<String> = (0..50).map(|_| stack.link(TARGET)).collect();
    for code in &made {
        assert!(code.len() == 8 && !codes.contains(code));
        assert_eq!(stack.follow(code).location(), Some(TARGET));
    }
    // Those that Redis has lost are found as well.
    stack.redis.command(&["FLUSHALL"]);
    for code in &codes {
        assert_eq!(stack.follow(code).location(), Some(TARGET));
    }
}
