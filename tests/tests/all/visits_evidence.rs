//! What the edge records of a request beside its texts.

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
