//! The edge records properties of a request beside its texts.

use std::fs;
use std::process::Command;

use shortlink_tests::site::{Site, SiteOptions};
use shortlink_tests::stack;
use vocabulary::visit::evidence::{Accept, Fetch, Protocol, VisitEvidence};

use super::http2::listen_tls;
use super::visits::{stored, wait_for_names};

/// Follows a code with curl, over TLS or in the clear.
fn follow(site: &Site, is_tls: bool, arguments: &[&str]) {
    let (scheme, port) = if is_tls {
        ("https", site.nginx.internal_port)
    } else {
        ("http", site.nginx.public_port)
    };
    let output = Command::new("curl")
        .args(["-sSk", "--max-time", "10", "-o", "/dev/null"])
        .args(["-w", "%{http_code}", "-H", "Accept:"])
        .args(arguments)
        .arg(format!("{scheme}://127.0.0.1:{port}/one"))
        .output()
        .expect("curl");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "302", "{output:?}");
}

/// The evidence of the visits in the stream, in their order.
fn evidence(site: &Site, count: usize) -> Vec<VisitEvidence> {
    wait_for_names(site, count);
    stored(site).iter().map(|visit| visit.evidence).collect()
}

fn site(directory: &std::path::Path, server: &str) -> Site {
    Site::with(&SiteOptions {
        http: &format!(
            "server {{ listen 127.0.0.1:INTERNAL_PORT {}; {server} }}",
            listen_tls(directory)
        ),
        server,
        visits: "on interval=10ms",
        ..SiteOptions::default()
    })
}

#[test]
fn headers_protocol_and_encryption_are_recorded() {
    let directory = stack::directory();
    let site = site(directory.path(), "location / { shortlink; }");
    let navigation: Vec<&str> = [
        "SEC-FETCH-SITE: cross-site",
        "Sec-Fetch-Mode: navigate",
        "Sec-Fetch-Dest: document",
        "Sec-Fetch-User: ?1",
        "Sec-Fetch-Mode: cors",
        "Accept: text/html,application/xhtml+xml",
    ]
    .into_iter()
    .flat_map(|header| ["-H", header])
    .collect();
    let image = [
        "-H",
        "Sec-Fetch-Mode: no-cors",
        "-H",
        "Sec-Fetch-Dest: image",
        "-H",
        "Accept: image/avif,*/*;q=0.8",
    ];
    follow(&site, true, &[&["--http2"], &navigation[..]].concat());
    follow(&site, true, &[&["--http1.1"], &image[..]].concat());
    follow(&site, false, &["--http1.0", "-H", "Accept: */*"]);
    follow(&site, false, &["--http1.1"]);
    let known: Vec<_> = evidence(&site, 4)
        .into_iter()
        .map(|it| (it.fetch(), it.accept(), it.protocol(), it.is_tls()))
        .collect();
    let expected = [
        (Fetch::Navigation, Accept::Html, Protocol::Http2, true),
        (Fetch::Part, Accept::Image, Protocol::Http11, true),
        (Fetch::None, Accept::Any, Protocol::Http10, false),
        (Fetch::None, Accept::None, Protocol::Http11, false),
    ];
    let expected = expected
        .map(|(fetch, accept, protocol, is_tls)| (Some(fetch), Some(accept), protocol, is_tls));
    assert_eq!(known, expected);
    assert!(stored(&site).iter().all(|it| !it.evidence.is_truncated()));
    site.assert_sound(&[]);
}

/// Follows a code as a visitor whose address `realip` takes from a header.
fn follow_from(site: &Site, path: &str, address: &str) {
    let answer = site.send("GET", path, &[("X-Visitor", address)]);
    assert!(matches!(answer.status, 302 | 410), "{answer:?}");
}

#[test]
fn no_whole_address_leaves_nginx_where_addresses_are_truncated() {
    let mut site = Site::with(&SiteOptions {
        http: "set_real_ip_from 127.0.0.1; real_ip_header X-Visitor;",
        server: "shortlink_visit_address truncated;
                 location / { shortlink; shortlink_fallback @fallback; }
                 location @fallback { shortlink_visit_address full; return 302 /; }
                 location /gone { shortlink; shortlink_visit_address full; }",
        cache: "1m stale=10m",
        visits: "on batch=1 interval=10ms spool=spool",
        ..SiteOptions::default()
    });
    let visitors = [
        ("203.0.113.77", "203.0.113.0"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1::"),
        ("::ffff:198.51.100.99", "198.51.100.0"),
    ];
    for (address, _) in visitors {
        follow_from(&site, "/one", address);
    }
    // The fallback answers; the location that asked it decides.
    follow_from(&site, "/missing", "203.0.113.77");
    follow_from(&site, "/gone", "203.0.113.77");
    wait_for_names(&site, 5);
    let found: Vec<_> = stored(&site)
        .iter()
        .map(|it| (it.client(), it.evidence.is_truncated()))
        .collect();
    let networks = visitors.map(|(_, network)| (network.to_owned(), true));
    assert_eq!(found[..3], networks);
    assert_eq!(found[3], ("203.0.113.0".to_owned(), true));
    assert_eq!(found[4], ("203.0.113.77".to_owned(), false));
    // Spool files have no more than Redis.
    site.redis.kill();
    follow_from(&site, "/one", "203.0.113.78");
    site.nginx.quit();
    let files = fs::read_dir(site.nginx.file("spool")).expect("a directory");
    let files = files.map(|file| fs::read(file.expect("a file").path()).expect("a file"));
    let bytes: Vec<u8> = files.flatten().collect();
    let has = |text: &[u8]| bytes.windows(text.len()).any(|part| part == text);
    assert!(has(b"203.0.113.0") && !has(b"203.0.113.78"));
}

#[test]
fn the_first_announced_purpose_counts() {
    let directory = stack::directory();
    let site = site(directory.path(), "location / { shortlink; }");
    let headers = [
        ("X-Moz: prefetch", "prefetch"),
        ("X-Purpose: preview", "preview"),
        ("Purpose: prefetch", "prefetch"),
        ("Sec-Purpose: prefetch;prerender", "prefetch;prerender"),
    ];
    for (number, (header, _)) in headers.iter().enumerate() {
        // Each beside those before it, which have less weight.
        let sent = headers[..number].iter().flat_map(|it| ["-H", it.0]);
        let sent: Vec<&str> = sent.chain(["-H", *header]).collect();
        follow(&site, false, &sent);
    }
    wait_for_names(&site, headers.len());
    let found = stored(&site);
    let found = found.iter().map(|it| String::from_utf8_lossy(&it.texts[6]));
    assert!(found.eq(headers.iter().map(|(_, purpose)| *purpose)));
}
