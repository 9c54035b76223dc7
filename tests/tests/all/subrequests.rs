//! Requests that nginx makes itself: in a location with `shortlink`, and beside one.

use shortlink_tests::http::{self, Connection, Response};
use shortlink_tests::site::{ONE, Site, SiteOptions};
use shortlink_tests::wait::{SOON, until};

fn body(answer: &Response) -> String {
    String::from_utf8_lossy(&answer.body).into_owned()
}

/// Sends a request that will wait.
fn ask(site: &Site, path: &str) -> Connection {
    let mut connection = Connection::open(site.nginx.public_port).expect("a connection");
    let request = http::request("GET", path, &[], b"");
    connection.send(&request).expect("sent");
    connection
}

/// Lets visitors ask and leave until nginx has noticed some.
fn come_and_leave(site: &Site, path: &str) {
    let left = || site.nginx.access_log().matches("\" 499 ").count();
    let before = left();
    let mut waiting = Vec::new();
    until("the visitors' leaving is noticed", SOON, || {
        // Each leaves one look after it has asked: the request must have been read.
        waiting.clear();
        waiting.push(ask(site, path));
        left() >= before + 3
    });
}

#[test]
fn a_code_as_auth_request_admits_nobody_but_a_fallback_may() {
    let site = Site::start(
        "location / { shortlink; }
         location /let/ { rewrite ^/let/(.*)$ /$1 break; shortlink; shortlink_fallback @let; }
         location @let { return 204; }
         location /refuse/ { rewrite ^/refuse/(.*)$ /$1 break; shortlink; error_page 404 410 =403 @no; }
         location @no { return 403; }
         location /redirect { auth_request /one; root html; }
         location /gone { rewrite ^ /gone break; shortlink; }
         location /revoked { auth_request /gone; root html; }
         location /malformed { auth_request /-; root html; }
         location /miss { auth_request /let/nosuchone; root html; try_files /page =404; }
         location /no { auth_request /refuse/nolink; root html; }",
    );
    site.write("html/page", "the page\n");
    // Neither 2xx nor 401 nor 403: nginx takes such an answer for an error.
    assert_eq!(site.get("/redirect").status, 500);
    assert_eq!(site.get("/revoked").status, 500);
    assert_eq!(site.get("/malformed").status, 500);
    let answer = site.get("/miss");
    assert_eq!((answer.status, &*body(&answer)), (200, "the page\n"));
    assert_eq!(site.get("/no").status, 403);
    site.assert_sound(&[
        "auth request unexpected status: 302",
        "auth request unexpected status: 410",
        "auth request unexpected status: 404",
    ]);
}

#[test]
fn an_included_code_adds_nothing_to_a_page() {
    let site = Site::start(
        "location / { shortlink; shortlink_fallback @fallback; }
         location @fallback { return 200 \"[$shortlink_code]\"; }
         location /page { ssi on; ssi_types *; root html; }",
    );
    let include = |path: &str| format!("<!--# include virtual=\"{path}\" -->");
    let page = |paths: &[&str]| {
        let included: Vec<String> = paths.iter().map(|path| include(path)).collect();
        format!("begin {} end\n", included.join(" + "))
    };
    site.write("html/page", &page(&["/one", "/one"]));
    site.write("html/page2", &page(&["/nosuchone"]));
    for _ in 0..3 {
        let answer = site.get("/page");
        assert_eq!((answer.status, &*body(&answer)), (200, "begin  +  end\n"));
        assert_eq!(answer.location(), None);
        let answer = site.get("/page2");
        assert_eq!(body(&answer), "begin [nosuchone] end\n");
    }
    // Several at once, and the visitor leaves.
    site.redis.hang();
    come_and_leave(&site, "/page");
    come_and_leave(&site, "/page2");
    let mut patient = ask(&site, "/page");
    site.redis.go_on();
    let answer = patient.receive("GET").expect("read").expect("an answer");
    assert_eq!(body(&answer), "begin  +  end\n");
    site.assert_ends_sound(&["lost Redis"]);
}

#[test]
fn a_visitor_that_leaves_during_a_subrequest_disturbs_nobody() {
    let site = Site::start(
        "location / { shortlink; }
         location /asked { auth_request /one; root html; }
         location /mirrored { mirror /one; rewrite ^ /two break; shortlink; }",
    );
    site.redis.hang();
    come_and_leave(&site, "/asked");
    come_and_leave(&site, "/mirrored");
    site.redis.go_on();
    until("Redis is used again", SOON, || {
        site.get("/one").location() == Some(ONE)
    });
    // Redis may be back before it is noticed that the visitor has left: then the answer, which is
    // none that `auth_request` knows, is complained of as ever.
    site.assert_ends_sound(&["lost Redis", "auth request unexpected status"]);
}

#[test]
fn a_mirror_sees_the_request_while_the_code_is_answered() {
    let site = Site::with(&SiteOptions {
        http: "log_format seen '$request_uri $shortlink_outcome';
               server {
                   listen 127.0.0.1:INTERNAL_PORT;
                   access_log logs/mirror.log seen;
                   location / { return 204; }
               }",
        server: "location / {
                     shortlink;
                     shortlink_fallback @fallback;
                     mirror /mirror;
                 }
                 location /mirror {
                     internal;
                     proxy_pass http://127.0.0.1:INTERNAL_PORT$request_uri;
                 }
                 location @fallback { return 200 \"$shortlink_code\\n\"; }
                 location /plain { mirror /one; mirror /gone; mirror /~; root html; }",
        ..SiteOptions::default()
    });
    let mut connection = Connection::open(site.nginx.public_port).expect("a connection");
    for _ in 0..3 {
        let request = http::request("GET", "/one", &[], b"");
        connection.send(&request).expect("sent");
        let answer = connection.receive("GET").expect("read").expect("an answer");
        assert_eq!((answer.status, answer.location()), (302, Some(ONE)));
        let request = http::request("GET", "/nosuchone", &[], b"");
        connection.send(&request).expect("sent");
        let answer = connection.receive("GET").expect("read").expect("an answer");
        assert_eq!(body(&answer), "nosuchone\n");
    }
    let seen = site.log("mirror.log", 6);
    assert_eq!(seen[..2], ["/one -", "/nosuchone -"]);
    // The other way round.
    site.write("html/plain", "plain\n");
    let gets = site.redis.reads();
    assert_eq!(body(&site.get("/plain")), "plain\n");
    until("both codes are asked for", SOON, || {
        site.redis.reads() == gets + 2
    });
    site.assert_sound(&[]);
}

#[test]
fn each_subrequest_is_logged_as_itself() {
    let site = Site::with(&SiteOptions {
        http: "log_format sub '$uri $status $shortlink_code $shortlink_outcome';
               log_subrequest on;
               access_log logs/sub.log sub;",
        server: "location / { shortlink; error_page 404 =204 @no; }
                 location @no { return 204; }
                 location /asked {
                     auth_request /nolink;
                     rewrite ^ /one break;
                     shortlink;
                 }",
        ..SiteOptions::default()
    });
    assert_eq!(site.get("/asked").location(), Some(ONE));
    assert_eq!(
        site.log("sub.log", 2),
        ["/nolink 204 nolink unknown", "/one 302 one redirect"]
    );
    site.assert_sound(&[]);
}
#[test]
fn what_a_subrequest_found_is_not_taken_for_the_request_s_own() {
    let site = Site::with(&SiteOptions {
        http: "log_format own '$status [$shortlink_code] [$shortlink_outcome]';
               access_log logs/own.log own;",
        server: "location / { shortlink; }
                 location /let/ { rewrite ^ /nosuchone break; shortlink; shortlink_fallback @let; }
                 location @let { return 204; }
                 location /plain { auth_request /let/; root html; try_files /page =404; }
                 location /mirrored {
                     mirror /gone;
                     rewrite ^ /other break;
                     shortlink;
                     shortlink_fallback @fallback;
                 }
                 location @fallback { return 200 \"$shortlink_code $shortlink_outcome\\n\"; }",
        ..SiteOptions::default()
    });
    site.write("html/page", "the page\n");
    assert_eq!(body(&site.get("/mirrored")), "other miss\n");
    assert_eq!(body(&site.get("/plain")), "the page\n");
    assert_eq!(
        site.log("own.log", 2),
        ["200 [other] [miss]", "200 [-] [-]"]
    );
}

#[test]
fn included_codes_have_a_fallback_each() {
    let site = Site::start(
        "location / { shortlink; shortlink_fallback @fallback; }
         location @fallback { return 200 \"[$shortlink_code]\"; }
         location /page { ssi on; ssi_types *; root html; }",
    );
    let include = |path: &str| format!("<!--# include virtual=\"{path}\" -->");
    let page = ["/first", "/one", "/second", "/third"].map(include);
    site.write("html/page", &format!("begin {} end\n", page.join(" + ")));
    for _ in 0..3 {
        assert_eq!(
            body(&site.get("/page")),
            "begin [first] +  + [second] + [third] end\n"
        );
    }
    site.assert_ends_sound(&[]);
}
