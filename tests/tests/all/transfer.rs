//! Links are brought from another service, and taken to one.

use std::fs;
use std::time::Duration;

use serde_json::{Value, json};
use shortlink_tests::stack::{Stack, StackOptions, text};
use shortlink_tests::wait::until;
use shortlink_tests::workspace;

/// The path of a file beside the servers'.
fn path_of(stack: &Stack, name: &str) -> String {
    stack.directory().join(name).display().to_string()
}

fn write(stack: &Stack, name: &str, text: &str) -> String {
    let path = path_of(stack, name);
    fs::write(&path, text).expect("a file");
    path
}

/// Imports; returns the exit code and the messages.
fn import(stack: &Stack, arguments: &[&str]) -> (Option<i32>, String) {
    let output = stack.sidecar.run(&[&["import"], arguments].concat());
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    (output.status.code(), said)
}

/// Codes of six characters as an old service gave them out: without a check character.
fn old_code(number: usize) -> String {
    let mut rest = number.wrapping_mul(2_654_435_761) % 62_usize.pow(6);
    let characters = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
    (0..6)
        .map(|_| {
            let character = char::from(characters[rest % 62]);
            rest /= 62;
            character
        })
        .collect()
}

fn old_file(count: usize) -> String {
    let mut text = "\u{feff}keyword,url,title,timestamp,ip,clicks\r\n".to_owned();
    for number in 0..count {
        text.push_str(&format!(
            "{},https://example.com/old/{number},\"No. {number}, the \"\"best\"\"\",\
             2019-05-01 08:00:00,192.0.2.1,{number}\r\n",
            old_code(number)
        ));
    }
    text
}

fn lines(path: &str) -> Vec<Value> {
    let text = fs::read_to_string(path).expect("a file");
    let lines = text.lines();
    lines
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect()
}

#[test]
fn every_link_of_an_old_service_redirects() {
    let mut stack = Stack::start();
    let path = write(&stack, "old.csv", &old_file(3000));
    let (code, said) = import(&stack, &[&path]);
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("created: 3000"), "{said}");
    for number in 0..3000 {
        let answer = stack.follow(&old_code(number));
        let target = format!("https://example.com/old/{number}");
        assert_eq!(
            (answer.status, answer.location()),
            (302, Some(&*target)),
            "{number}"
        );
    }
    let link = stack.api("GET", &format!("/v1/links/{}", old_code(7)), None);
    assert_eq!(text(&link.json(), "createdAt"), "2019-05-01T08:00:00Z");
    let (code, said) = import(&stack, &[&path]);
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("the same: 3000"), "{said}");
    // They were published: nginx needs no sidecar.
    until("all are in Redis", Duration::from_secs(20), || {
        stack.redis.keys() == 3000
    });
    stack.sidecar.kill();
    for number in [0, 7, 2999] {
        assert_eq!(stack.follow(&old_code(number)).status, 302, "{number}");
    }
}

#[test]
fn an_import_that_was_killed_is_finished_by_the_next() {
    let stack = Stack::start();
    let count = 60_000;
    let path = write(&stack, "old.csv", &old_file(count));
    let log = stack.directory().join("import.log");
    let mut first = stack.sidecar.spawn(&["import", &path], &log);
    until("something is imported", Duration::from_secs(60), || {
        stack.redis.keys() > 2000
    });
    first.kill();
    let there = stack.redis.keys();
    assert!(there < count, "it was too fast to be killed");
    // The service had its say meanwhile, and has it now.
    stack.link("https://example.com/meanwhile");
    let (code, said) = import(&stack, &[&path]);
    assert_eq!(code, Some(0), "{said}");
    assert!(!said.contains("the same: 0"), "{said}");
    let out = path_of(&stack, "all.ndjson");
    stack.sidecar.run_ok(&["export", "--out", &out]);
    let mut codes: Vec<String> = lines(&out).iter().map(|it| text(it, "shortCode")).collect();
    assert_eq!(codes.len(), count + 1);
    codes.sort_unstable();
    codes.dedup();
    assert_eq!(codes.len(), count + 1);
    for number in (0..count).step_by(997) {
        assert_eq!(stack.follow(&old_code(number)).status, 302, "{number}");
    }
}

#[test]
fn a_dry_run_checks_and_writes_nothing() {
    let stack = Stack::start();
    let taken = json!({ "longUrl": "https://example.com/", "customSlug": "taken" });
    stack.create(&taken);
    let file = "code,url\ntaken,https://example.com/other\nnew,https://example.com/\n\
                bad.code,https://example.com/\n";
    let path = write(&stack, "links.csv", file);
    let (code, said) = import(&stack, &["--dry-run", &path]);
    assert_eq!(code, Some(2), "{said}");
    for expected in ["to be created: 1", "other targets: 1", "refused: 1"] {
        assert!(said.contains(expected), "{said}");
    }
    assert_eq!(stack.follow("new").status, 404);
    assert_eq!(stack.sidecar.run_ok(&["export"]).lines().count(), 2);
}

#[test]
fn an_export_can_be_imported_into_an_empty_database() {
    let stack = Stack::start();
    let slug = |slug: &str| {
        let body = json!({ "longUrl": "https://example.com/a,\"b\"", "customSlug": slug,
            "redirectStatus": 308 });
        stack.create(&body);
    };
    slug("ABCDEFGHIJKLMNOP");
    slug("away");
    let issued = stack.link("https://example.com/issued?x=1");
    let bounded = json!({ "longUrl": "https://example.com/u", "customSlug": "until",
        "validSince": "2026-01-01T00:00:00Z", "validUntil": "2035-01-01T00:00:00Z",
        "maxVisits": 9, "tags": ["a|b", "c, d"], "note": "password", "externalId": "a/b" });
    stack.create(&bounded);
    assert_eq!(stack.api("DELETE", "/v1/links/away", None).status, 200);
    let old = "slug,destination,expires_at\nold,https://example.com/old,1500000000\n";
    let old = write(&stack, "old.csv", old);
    assert_eq!(import(&stack, &[&old]).0, Some(0));
    assert_eq!(stack.follow("old").status, 410);

    for format in ["csv.gz", "ndjson"] {
        let name = format!("all.{format}");
        let out = path_of(&stack, &name);
        stack.sidecar.run_ok(&["export", "--out", &out]);
        let other = Stack::start();
        let (code, said) = import(&other, &[&out]);
        assert_eq!(code, Some(0), "{said}");
        let links = |stack: &Stack| -> Vec<Value> {
            let all = stack.sidecar.run_ok(&["export", "--format", "ndjson"]);
            let mut links: Vec<Value> = all
                .lines()
                .map(|line| serde_json::from_str(line).expect("JSON"))
                .collect();
            for link in &mut links {
                // The importing key is the creator.
                link["createdBy"].take();
            }
            links.sort_by_key(|link| text(link, "shortCode"));
            links
        };
        assert_eq!(links(&other), links(&stack), "{format}");
        assert_eq!(links(&other).len(), 5);
        for (code, status) in [
            (&*issued, 302),
            ("ABCDEFGHIJKLMNOP", 308),
            ("away", 410),
            ("until", 302),
            ("old", 410),
        ] {
            assert_eq!(other.follow(code).status, status, "{code}");
        }
    }
    let live = stack.sidecar.run_ok(&["export", "--state", "live"]);
    assert_eq!(live.lines().count(), 4, "{live}");
}

#[test]
fn a_report_says_why_rows_are_not_in() {
    let stack = Stack::with(&StackOptions {
        sidecar: "[codes]\nbody_length = 7\ncheck = \"luhn\"".to_owned(),
        ..StackOptions::default()
    });
    let issued = stack.link("https://example.com/");
    // Its last character is changed, so that it is not the check character.
    let wrong = format!(
        "{}{}",
        &issued[..7],
        if issued.ends_with('a') { 'b' } else { 'a' }
    );
    let rows = [
        ("a.b".to_owned(), "https://example.com/", "refused"),
        (wrong, "https://example.com/", "refused"),
        (issued.clone(), "https://example.com/other", "conflict"),
        (issued, "https://example.com/", "same"),
        ("inside".to_owned(), "http://localhost/", "refused"),
        ("Login".to_owned(), "https://example.com/", "refused"),
    ];
    let mut file = "{\"code\":\"good\",\"target\":\"https://example.com/\"}\n".to_owned();
    for (code, target, _) in &rows {
        file.push_str(&format!(
            "{}\n",
            json!({ "short_code": code, "target": target })
        ));
    }
    file.push_str("nonsense\n");
    let path = write(&stack, "links.jsonl", &file);
    let report = path_of(&stack, "report.ndjson");
    let (code, said) = import(&stack, &["--report", &report, &path]);
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("codes.body_length"), "{said}");
    let found = lines(&report);
    assert_eq!(found.len(), rows.len() + 1);
    for (number, (code, _, outcome)) in rows.iter().enumerate() {
        assert_eq!(found[number]["line"], number + 2);
        assert_eq!(found[number]["code"], **code);
        assert_eq!(found[number]["outcome"], **outcome, "{}", found[number]);
    }
    assert_eq!(found[6]["line"], 8);
    assert_eq!(stack.follow("good").status, 302);
    // As a whole it can be made to fail.
    let (code, said) = import(&stack, &["--on-conflict", "fail", &path]);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("line 4: the code"), "{said}");
    // A file that can't be read at all fails.
    for (name, content, expected) in [
        ("a.csv", "a,b\nc,d\n", "--map code=NAME"),
        ("b.csv", "", "the file is empty; a header is needed"),
        ("d.txt", "code,url\n", "--format"),
    ] {
        let path = write(&stack, name, content);
        let (code, said) = import(&stack, &[&path]);
        assert_eq!(code, Some(1), "{name}: {said}");
        assert!(said.contains(expected), "{name}: {said}");
    }
    assert_eq!(import(&stack, &["nosuch.csv"]).0, Some(1));
    // The separator of columns is recognised.
    let path = write(
        &stack,
        "semicolons.csv",
        "code;url;note\nsemi;https://example.com/;a,b,c,d\n",
    );
    let (code, said) = import(&stack, &[&path]);
    assert!(
        code == Some(0) && said.contains("columns are separated by semicolons"),
        "{said}"
    );
    let link = stack.api("GET", "/v1/links/semi", None).json();
    assert_eq!(link["note"], "a,b,c,d", "{link}");
    // Other encodings than UTF-8 are recognised by their mark, or declared.
    let marked = "\u{feff}code,url,note\nmarked,https://example.com/,短信\n";
    let marked = marked.encode_utf16().flat_map(u16::to_le_bytes).collect();
    let gbk = [
        &b"code,url,note\ngbk,https://example.com/,"[..],
        b"\xb6\xcc\xd0\xc5\n",
    ]
    .concat();
    for (name, content, options) in [
        ("marked", marked, &[][..]),
        ("gbk", gbk, &["--encoding", "gbk"]),
    ] {
        let path = path_of(&stack, &format!("{name}.csv"));
        fs::write(&path, content).expect("a file");
        if !options.is_empty() {
            let (code, said) = import(&stack, &["--dry-run", &path]);
            assert!(
                code == Some(2) && said.contains("cannot be decoded"),
                "{said}"
            );
        }
        let (code, said) = import(&stack, &[options, &[&*path]].concat());
        assert_eq!(code, Some(0), "{name}: {said}");
        let link = stack.api("GET", &format!("/v1/links/{name}"), None).json();
        assert_eq!(link["note"], "短信", "{name}: {link}");
    }
}

/// A file in the form in which another service exports its links, and the import of it.
struct Foreign {
    file: &'static str,
    options: &'static [&'static str],
    /// The lines that list the columns, without the name of the file.
    columns: [&'static str; 2],
    /// The code of each link, its target, and other members.
    links: Vec<(&'static str, &'static str, Value)>,
    /// The line of each refused row, its code, and a part of the reason.
    refused: &'static [(u64, &'static str, &'static str)],
}

fn foreign_files() -> Vec<Foreign> {
    vec![
        Foreign {
            file: "yourls.csv",
            options: &[],
            columns: [
                "read: keyword (code), url, timestamp (created)",
                "ignored: title, ip, clicks",
            ],
            links: vec![
                (
                    "ozh",
                    "https://example.com/blog",
                    json!({ "createdAt": "2012-03-04T05:06:07Z", "tags": [] }),
                ),
                ("1", "https://example.com/first", json!({})),
                ("my-page", "https://example.com/hyphen", json!({})),
            ],
            refused: &[],
        },
        Foreign {
            file: "shlink.csv",
            options: &["--prefix", "campaign"],
            columns: [
                "read: createdAt (created), domain, shortCode (code), longUrl (url), tags",
                "ignored: shortUrl, title, visits",
            ],
            links: vec![
                (
                    "spring",
                    "https://example.com/spring?utm_source=sms",
                    json!({ "createdAt": "2021-06-01T10:30:00Z", "tags": ["sms", "spring 21"],
                        "domain": "s.example" }),
                ),
                ("winter", "https://example.com/winter", json!({})),
            ],
            refused: &[(4, "other/place/x", "\"other/place/x\" has several segments")],
        },
        Foreign {
            file: "shlink.ndjson",
            options: &[],
            columns: [
                "read: shortCode (code), longUrl (url), dateCreated (created), forwardQuery, \
                 validSince, validUntil (expires), maxVisits, tags, domain",
                "ignored: crawlable, hasRedirectRules, meta, shortUrl, title, visitsSummary",
            ],
            links: vec![(
                "bounded",
                "https://example.com/bounded",
                json!({ "validSince": "2021-06-30T22:00:00Z", "validUntil": "2035-01-01T00:00:00Z",
                    "maxVisits": 100, "forwardQuery": true, "tags": ["bounded", "sms"] }),
            )],
            refused: &[],
        },
        Foreign {
            file: "kutt.csv",
            options: &[],
            columns: [
                "read: address (code), banned, created_at (created), updated_at (updatedAt), \
                 target (url), password, expire_in (expires)",
                "ignored: id, description, banned_by_id, domain_id, user_id, visit_count, uuid",
            ],
            links: vec![
                (
                    "summer",
                    "https://example.com/kutt",
                    json!({ "createdAt": "2023-01-02T03:04:05.678Z", "validUntil": null,
                        "updatedAt": "2023-02-03T04:05:06.789Z" }),
                ),
                (
                    "ending",
                    "https://example.com/ending",
                    json!({ "validUntil": "2035-01-01T00:00:00Z", "state": "live" }),
                ),
                (
                    "ended",
                    "https://example.com/ended",
                    json!({ "validUntil": "2023-02-01T00:00:00Z", "state": "expired" }),
                ),
            ],
            refused: &[
                (5, "phish", "banned is set"),
                (6, "secret", "password is set"),
            ],
        },
        Foreign {
            file: "dub.csv",
            options: &["--tag-delimiter", ","],
            columns: [
                "read: Short link (shortUrl), Destination URL (url), Tags (tags), \
                 Created at (created), Updated at (updatedAt)",
                "ignored: Clicks, Archived",
            ],
            links: vec![
                (
                    "launch",
                    "https://example.com/launch?utm_source=dub",
                    json!({ "createdAt": "2024-05-01T12:00:00Z", "tags": ["news", "sms"] }),
                ),
                // Dub goes on to redirect archived links.
                (
                    "attic",
                    "https://example.com/attic",
                    json!({ "state": "live" }),
                ),
            ],
            refused: &[(4, "docs/api", "\"docs/api\" has several segments")],
        },
        Foreign {
            file: "dub.ndjson",
            options: &[],
            columns: [
                "read: url, createdAt (created), updatedAt, shortLink (shortUrl), disabledAt, \
                 password, expiresAt (expires), tags, externalId, domain",
                "ignored: archived, clicks, expiredUrl, geo, id, key, title",
            ],
            links: vec![(
                "fair",
                "https://example.com/fair",
                json!({ "validUntil": "2035-01-01T00:00:00Z", "externalId": "ext_7",
                    "tags": ["news"], "domain": "d.example" }),
            )],
            refused: &[
                (2, "off", "disabledAt is set"),
                (3, "inner", "password is set"),
            ],
        },
        Foreign {
            file: "bitly.ndjson",
            options: &[],
            columns: [
                "read: long_url (url), created_at (created), link (shortUrl), is_deleted (deleted), tags",
                "ignored: archived, client_id, created_by, custom_bitlinks, deeplinks, id, \
                 launchpad_ids, references, title",
            ],
            links: vec![(
                "3xYz9Ab",
                "https://example.com/autumn",
                json!({ "createdAt": "2013-09-19T04:48:05Z", "tags": ["autumn", "sms"] }),
            )],
            refused: &[(2, "gone", "deleted is set")],
        },
    ]
}

#[test]
fn files_of_other_services_become_the_same_links_or_are_refused() {
    let stack = Stack::start();
    let count = || stack.sidecar.run_ok(&["export"]).lines().count();
    for Foreign {
        file,
        options,
        columns,
        links,
        refused,
    } in foreign_files()
    {
        let path = workspace().join("tests/data/imports").join(file);
        let path = path.display().to_string();
        let report = path_of(&stack, "report.ndjson");
        let arguments = [options, &["--report", &report, &path]].concat();
        let expected_code = if refused.is_empty() { 0 } else { 2 };
        let listed = columns.map(|columns| format!("shortlink: {path}: columns {columns}"));

        let before = count();
        let (code, said) = import(&stack, &[&["--dry-run"], &arguments[..]].concat());
        assert_eq!(code, Some(expected_code), "{file}: {said}");
        assert!(said.starts_with(&listed.join("\n")), "{file}: {said}");
        assert_eq!(count(), before, "{file}");

        let (code, said) = import(&stack, &arguments);
        assert_eq!(code, Some(expected_code), "{file}: {said}");
        assert!(said.starts_with(&listed.join("\n")), "{file}: {said}");
        assert!(
            said.contains(&format!("created: {}\n", links.len())),
            "{file}: {said}"
        );
        for (code, target, members) in &links {
            let link = stack.api("GET", &format!("/v1/links/{code}"), None).json();
            assert_eq!(text(&link, "longUrl"), *target, "{file}");
            for (name, value) in members.as_object().expect("members") {
                assert_eq!(
                    link.get(name).unwrap_or(&Value::Null),
                    value,
                    "{file} {link}"
                );
            }
            let answer = stack.follow(code);
            match link["state"] == "live" {
                true => assert_eq!(answer.location(), Some(*target), "{file}"),
                false => assert_eq!(answer.status, 410, "{file} {code}"),
            }
        }
        let found = lines(&report);
        assert_eq!(found.len(), refused.len(), "{file}: {found:?}");
        for (row, (line, code, reason)) in found.iter().zip(refused) {
            assert_eq!(
                (&row["line"], &row["code"]),
                (&json!(line), &json!(code)),
                "{file}"
            );
            assert!(text(row, "reason").contains(reason), "{file}: {row}");
            let code = code.rsplit('/').next().unwrap_or_default();
            assert_eq!(stack.follow(code).status, 404, "{file} {code}");
        }
    }
}
