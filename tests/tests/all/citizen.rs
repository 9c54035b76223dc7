//! The features of nginx' own modules work in a location with `shortlink` too.

use shortlink_tests::http::{self, Connection, Response};
use shortlink_tests::site::{ONE, Site, SiteOptions, TWO};
use shortlink_tests::wait::{SOON, until};

fn body(answer: &Response) -> String {
    String::from_utf8_lossy(&answer.body).into_owned()
}

fn assert_leads(answer: &Response, status: u16, target: &str) {
    assert_eq!((answer.status, answer.location()), (status, Some(target)));
    assert!(answer.body.is_empty());
}

#[test]
fn limit_req_refuses_the_excess_before_redis_is_asked() {
    let site = Site::with(&SiteOptions {
        http: "limit_req_zone $binary_remote_addr zone=visitors:1m rate=1r/m;
               limit_req_status 429;
               log_format limited '$status $shortlink_outcome $limit_req_status';",
        server: "location / {
                     shortlink;
                     limit_req zone=visitors burst=2 nodelay;
                     access_log logs/limited.log limited;
                 }",
        ..SiteOptions::default()
    });
    let gets = site.redis.reads();
    let statuses: Vec<u16> = (0..8).map(|_| site.get("/one").status).collect();
    assert_eq!(statuses, [302, 302, 302, 429, 429, 429, 429, 429]);
    assert_eq!(site.redis.reads() - gets, 3);
    let log = site.log("limited.log", 8);
    assert_eq!(log[2], "302 redirect PASSED");
    assert_eq!(log[3], "429 - REJECTED");
    site.assert_sound(&["limiting requests"]);
}

#[test]
fn limit_conn_counts_those_who_wait_for_redis() {
    let site = Site::with(&SiteOptions {
        http: "limit_conn_zone $server_name zone=all:1m;",
        server: "location / {
                     shortlink;
                     limit_conn all 1;
                     limit_conn_status 429;
                 }",
        ..SiteOptions::default()
    });
    site.redis.hang();
    let request = http::request("GET", "/one", &[], b"");
    let mut first = Connection::open(site.nginx.public_port).expect("a connection");
    first.send(&request).expect("sent");
    assert_eq!(site.get("/one").status, 429);
    // A visitor that leaves frees a place for another.
    drop(first);
    until("the visitor's leaving is noticed", SOON, || {
        site.nginx.access_log().contains("\" 499 ")
    });
    let mut second = Connection::open(site.nginx.public_port).expect("a connection");
    second.send(&request).expect("sent");
    assert_eq!(site.get("/one").status, 429);
    site.redis.go_on();
    let answer = second.receive("GET").expect("read").expect("an answer");
    assert_leads(&answer, 302, ONE);
    assert_leads(&site.get("/one"), 302, ONE);
    site.assert_ends_sound(&["limiting connections", "lost Redis"]);
}

#[test]
fn error_page_shows_a_file_a_named_location_or_another_address() {
    let mut site = Site::start(
        "error_page 404 /404.html;
         error_page 410 @gone;
         error_page 503 =302 https://status.example.com/;
         location / { shortlink; }
         location = /404.html { root html; internal; }
         location @gone { return 200 \"gone: $shortlink_code $shortlink_outcome\\n\"; }
         location /changed {
             rewrite ^/changed/(.*)$ /$1 break;
             shortlink;
             error_page 404 =200 /404.html;
             error_page 410 =451 @gone;
         }",
    );
    site.write("html/404.html", "<p>no such link</p>\n");
    for path in ["/nolink", "/nosuchone", "/~"] {
        let answer = site.get(path);
        assert_eq!(
            (answer.status, &*body(&answer)),
            (404, "<p>no such link</p>\n"),
            "{path}"
        );
        assert_eq!(answer.header("Content-Type"), Some("text/html"));
        assert_eq!(answer.all("Cache-Control"), ["no-store"], "{path}");
    }
    let answer = site.get("/gone");
    assert_eq!((answer.status, &*body(&answer)), (410, "gone: gone gone\n"));
    assert_eq!(answer.all("Cache-Control"), ["no-store"]);
    assert_eq!(site.send("HEAD", "/gone", &[]).status, 410);
    let answer = site.get("/changed/nolink");
    assert_eq!(
        (answer.status, &*body(&answer)),
        (200, "<p>no such link</p>\n")
    );
    assert_eq!(site.get("/changed/gone").status, 451);
    assert_leads(&site.get("/changed/one"), 302, ONE);

    site.redis.kill();
    until("Redis' going is noticed", SOON, || {
        let answer = site.get("/one");
        answer.location() == Some("https://status.example.com/")
    });
    let answer = site.get("/one");
    assert_eq!(answer.status, 302);
    assert_eq!(answer.all("Cache-Control"), ["no-store"]);
    assert_eq!(answer.all("Location"), ["https://status.example.com/"]);
    site.assert_ends_sound(&["lost Redis"]);
}

#[test]
fn if_blocks_stand_within_the_location() {
    let site = Site::start(
        "location / {
             shortlink;
             shortlink_fallback @fallback;
             set $seen no;
             if ($http_user_agent ~ bad) { return 403; }
             if ($arg_mark) { set $seen yes; }
             if ($arg_empty) { }
             if ($arg_header) { add_header X-If \"$shortlink_outcome\" always; }
             if ($arg_other) { shortlink_fallback @other; }
             if ($arg_away) { rewrite ^ /elsewhere last; }
         }
         location /elsewhere { return 200 \"elsewhere\\n\"; }
         location @fallback { return 200 \"fallback $seen\\n\"; }
         location @other { return 200 \"other $shortlink_code\\n\"; }
         location /inside {
             rewrite ^/inside/(.*)$ /$1;
             if ($arg_short) { shortlink; break; }
             return 204;
         }",
    );
    let gets = site.redis.reads();
    let answer = site.send("GET", "/one", &[("User-Agent", "a bad one")]);
    assert_eq!((answer.status, answer.header("X-Edge")), (403, Some("/")));
    assert_eq!(site.redis.reads(), gets);
    assert_leads(&site.get("/one"), 302, ONE);
    assert_leads(&site.get("/one?mark=1"), 302, ONE);
    assert_leads(&site.get("/one?empty=1"), 302, ONE);
    assert_eq!(body(&site.get("/nosuchone?empty=1")), "fallback no\n");
    assert_eq!(body(&site.get("/nosuchone?mark=1")), "fallback yes\n");
    let answer = site.get("/one?header=1");
    assert_leads(&answer, 302, ONE);
    assert_eq!(answer.header("X-If"), Some("redirect"));
    assert_eq!(body(&site.get("/nosuchone?header=1")), "fallback no\n");
    assert_eq!(body(&site.get("/nosuchone?other=1")), "other nosuchone\n");
    assert_eq!(body(&site.get("/one?away=1")), "elsewhere\n");
    assert_eq!(site.get("/inside/one").status, 204);
    assert_leads(&site.get("/inside/one?short=1"), 302, ONE);
    site.assert_sound(&[]);
}

#[test]
fn add_header_adds_to_redirects_and_always_to_refusals() {
    let site = Site::start(
        "location / {
             shortlink;
             add_header X-Plain \"$shortlink_code\";
             add_header X-Always \"$shortlink_outcome $shortlink_source $shortlink_target\" always;
             add_header Strict-Transport-Security \"max-age=1\" always;
         }",
    );
    let answer = site.get("/one");
    assert_leads(&answer, 302, ONE);
    assert_eq!(answer.all("X-Plain"), ["one"]);
    assert_eq!(
        answer.all("X-Always"),
        [format!("redirect redis {ONE}").as_str()]
    );
    let answer = site.get("/two");
    assert_leads(&answer, 301, TWO);
    assert_eq!(answer.all("X-Plain"), ["two"]);
    for (path, said) in [
        ("/gone", "gone redis "),
        ("/nolink", "unknown redis "),
        ("/nosuchone", "miss redis "),
        ("/~", "malformed none "),
    ] {
        let answer = site.get(path);
        assert_eq!(answer.header("X-Plain"), None, "{path}");
        assert_eq!(answer.all("X-Always"), [said], "{path}");
        assert_eq!(answer.all("Strict-Transport-Security"), ["max-age=1"]);
    }
    site.assert_sound(&[]);
}

#[test]
fn access_is_decided_before_redis_is_asked() {
    let site = Site::start(
        "location / { shortlink; allow 192.0.2.1; deny all; }
         location /any {
             rewrite ^/any/(.*)$ /$1 break;
             shortlink;
             satisfy any;
             allow 192.0.2.1;
             deny all;
             auth_basic staff;
             auth_basic_user_file staff;
         }
         location /asked {
             rewrite ^/asked/(.*)$ /$1 break;
             shortlink;
             shortlink_fallback @fallback;
             auth_request /may;
             auth_request_set $who $http_x_pass;
             add_header X-Who $who always;
         }
         location = /may {
             internal;
             if ($http_x_pass != yes) { return 403; }
             return 204;
         }
         location @fallback { return 200 \"$shortlink_code $shortlink_outcome $who\\n\"; }
         location /internal {
             internal;
             shortlink;
         }",
    );
    site.write("staff", "me:{PLAIN}secret\n");
    let gets = site.redis.reads();
    assert_eq!(site.get("/one").status, 403);
    assert_eq!(site.get("/any/one").status, 401);
    assert_eq!(site.get("/asked/one").status, 403);
    assert_eq!(site.get("/internal").status, 404);
    assert_eq!(site.redis.reads(), gets);
    let basic = [("Authorization", "Basic bWU6c2VjcmV0")];
    assert_leads(&site.send("GET", "/any/one", &basic), 302, ONE);
    let pass = [("X-Pass", "yes")];
    let answer = site.send("GET", "/asked/one", &pass);
    assert_leads(&answer, 302, ONE);
    assert_eq!(answer.header("X-Who"), Some("yes"));
    let answer = site.send("GET", "/asked/nosuchone", &pass);
    assert_eq!(body(&answer), "nosuchone miss yes\n");
    site.assert_sound(&["access forbidden by rule"]);
}

/// nginx closes a connection that lingers only for one that needs a place: so few that none is left over.
#[test]
fn redis_gets_the_place_of_a_client_that_lingers() {
    let mut site = Site::start(
        "keepalive_timeout 0;
         lingering_close always;
         lingering_time 10m;
         lingering_timeout 10m;
         location / { shortlink; }",
    );
    let few = "worker_connections 15";
    site.nginx
        .edit("nginx.conf", "worker_connections 4096", few);
    site.nginx.reload_with(1);
    site.redis.kill();
    let request = http::request("GET", "/one", &[], b"");
    let mut clients = Vec::new();
    let mut come = || {
        let mut client = Connection::open(site.nginx.public_port).expect("a connection");
        client.send(&request).expect("sent");
        let answer = client.receive("GET").expect("read").expect("an answer");
        // It stays open on its side.
        clients.push(client);
        answer.status
    };
    for _ in 0..30 {
        assert_eq!(come(), 503);
    }
    site.redis.start_again();
    site.redis.set_record("one", &format!("1 302 1 0 {ONE}"));
    // A client takes each place that an attempt at a connection to Redis has freed.
    until("Redis answers again", SOON, || come() == 302);
    let log = site.nginx.error_log();
    assert!(log.contains("reusing connections"), "{log}");
    let expected = ["lost Redis", "Connection refused"];
    assert_eq!(site.nginx.complaints(&expected), [""; 0]);
}

#[test]
fn limit_except_refuses_or_admits_methods() {
    let site = Site::start(
        "location / {
             shortlink;
             limit_except GET { deny all; }
         }
         location /open {
             rewrite ^/open/(.*)$ /$1 break;
             shortlink;
             shortlink_fallback @fallback;
             limit_except GET { allow all; }
         }
         location /none {
             rewrite ^/none/(.*)$ /$1 break;
             shortlink;
             shortlink_fallback @fallback;
             limit_except POST { allow all; }
         }
         location @fallback { return 200 \"fallback\\n\"; }",
    );
    assert_leads(&site.get("/one"), 302, ONE);
    assert_leads(&site.send("HEAD", "/one", &[]), 302, ONE);
    let answer = site.send("POST", "/one", &[]);
    assert_eq!((answer.status, answer.header("Allow")), (403, None));
    // The module itself refuses a method that the location lets in.
    let answer = site.send("POST", "/open/one", &[]);
    assert_eq!(
        (answer.status, answer.header("Allow")),
        (405, Some("GET, HEAD"))
    );
    assert_eq!(body(&site.get("/none/nosuchone")), "fallback\n");
    site.assert_sound(&["access forbidden by rule"]);
}

#[test]
fn requests_come_to_the_location_by_any_way() {
    let site = Site::start(
        "location / { shortlink; }
         location /go/ { rewrite ^/go/(.*)$ /$1 last; }
         location /stay/ {
             rewrite ^/stay/(.*)$ /$1 break;
             shortlink;
         }
         location ~ ^/regex/(?<rest>[a-z]+)$ {
             rewrite ^ /$rest break;
             shortlink;
         }
         location ~* \\.Html$ { shortlink; }
         location = /exact { shortlink; }
         location /whole/ { shortlink; }
         location /tried { try_files /nosuchfile /one; }
         location /missing { root html; error_page 404 = /two; }
         location /renamed { error_page 418 = @short; return 418; }
         location @short { rewrite ^ /one break; shortlink; }
         location /chain { rewrite ^ /nolink break; shortlink; error_page 404 = /one; }",
    );
    for path in [
        "/go/one",
        "/stay/one",
        "/stay/one。",
        "/regex/one",
        "/one.html",
        "/one.HTML",
        "/tried",
        "/renamed",
    ] {
        let answer = site.get(path);
        assert_leads(&answer, 302, ONE);
        assert_eq!(answer.header("X-Edge"), Some("redirect/redis"), "{path}");
        assert_eq!(answer.all("Cache-Control"), ["no-store"], "{path}");
        assert_leads(&site.send("HEAD", path, &[]), 302, ONE);
    }
    assert_leads(&site.get("/missing"), 301, TWO);
    assert_eq!(site.get("/exact").header("X-Edge"), Some("miss/redis"));
    // The whole path counts, the location's own part of it too.
    site.redis.set_record("whole", &format!("1 302 1 0 {TWO}"));
    assert_leads(&site.get("/whole/one"), 302, TWO);
    // One code answers for another.
    let answer = site.get("/chain");
    assert_leads(&answer, 302, ONE);
    assert_eq!(answer.header("X-Edge"), Some("redirect/redis"));
    site.assert_sound(&["html/missing"]);
}

#[test]
fn servers_of_several_names_have_locations_of_their_own() {
    let site = Site::with(&SiteOptions {
        http: "server {
                   listen 127.0.0.1:PUBLIC_PORT;
                   server_name *.wild.example;
                   location / { shortlink; shortlink_fallback @here; }
                   location @here { return 200 \"wild $shortlink_domain_state\\n\"; }
               }
               server {
                   listen 127.0.0.1:PUBLIC_PORT;
                   server_name ~^(?<shop>.+)\\.regex\\.example$;
                   shortlink_fallback @here;
                   location / { shortlink; add_header X-Shop $shop; }
                   location @here { return 200 \"$shop\\n\"; }
               }
               server {
                   listen 127.0.0.1:PUBLIC_PORT;
                   server_name plain.example \"\";
                   location / { return 200 \"no links here\\n\"; }
               }",
        server: "location / { shortlink; }",
        ..SiteOptions::default()
    });
    let ask = |host, path| site.send("GET", path, &[("Host", host)]);
    for host in [
        "localhost",
        "a.wild.example",
        "a.b.wild.example",
        "x.regex.example",
        "other",
    ] {
        assert_leads(&ask(host, "/one"), 302, ONE);
    }
    assert_eq!(ask("localhost", "/nosuchone").status, 404);
    assert_eq!(body(&ask("a.wild.example", "/nosuchone")), "wild unknown\n");
    assert_eq!(body(&ask("x.regex.example", "/nosuchone")), "x\n");
    assert_eq!(ask("x.regex.example", "/one").header("X-Shop"), Some("x"));
    assert_eq!(body(&ask("plain.example", "/one")), "no links here\n");
    site.assert_sound(&[]);
}

#[test]
fn a_map_chooses_by_what_the_edge_found() {
    let site = Site::with(&SiteOptions {
        http: "map $shortlink_code $campaign { default none; one summer; }
               map $shortlink_outcome $grade { default bad; redirect good; }",
        server: "location / {
                     shortlink;
                     add_header X-Campaign \"$campaign $grade\" always;
                 }",
        ..SiteOptions::default()
    });
    for (path, chosen) in [
        ("/one", "summer good"),
        ("/two", "none good"),
        ("/gone", "none bad"),
    ] {
        assert_eq!(site.get(path).header("X-Campaign"), Some(chosen), "{path}");
    }
}

#[test]
fn an_empty_code_means_the_path() {
    let site = Site::start(
        "location / {
             set $shortlink_code \"\";
             shortlink;
             shortlink_fallback @fallback;
         }
         location /chosen { set $shortlink_code two; shortlink; }
         location @fallback { return 200 \"$shortlink_code $shortlink_outcome\\n\"; }",
    );
    assert_leads(&site.get("/one"), 302, ONE);
    assert_leads(&site.get("/chosen"), 301, TWO);
    assert_eq!(body(&site.get("/nosuchone")), "nosuchone miss\n");
    site.assert_sound(&[]);
}

#[test]
fn expires_replaces_what_the_module_says_of_caching() {
    let site = Site::start(
        "location / { shortlink; }
         location /hour/ { rewrite ^/hour/(.*)$ /$1 break; shortlink; expires 1h; }
         location /epoch/ { rewrite ^/epoch/(.*)$ /$1 break; shortlink; expires epoch; }",
    );
    let caching = |path: &str| {
        let answer = site.get(path);
        let found = answer.all("Cache-Control").join(" and ");
        (found, answer.header("Expires").is_some())
    };
    assert_eq!(caching("/one"), ("no-store".to_owned(), false));
    assert_eq!(caching("/two"), (String::new(), false));
    assert_eq!(caching("/hour/two"), ("max-age=3600".to_owned(), true));
    assert_eq!(caching("/epoch/two"), ("no-cache".to_owned(), true));
    assert_eq!(caching("/hour/one"), ("max-age=3600".to_owned(), true));
    assert_eq!(caching("/epoch/one"), ("no-cache".to_owned(), true));
}

/// Every answer of the module but a permanent redirect forbids to store it, unless the configuration sets the header.
#[test]
fn what_the_configuration_says_of_caching_stands_alone() {
    let site = Site::start(
        "location / { shortlink; error_page 404 @page; }
         location @page { add_header Cache-Control no-store always; return 404; }
         location /own/ {
             rewrite ^/own/(.*)$ /$1 break;
             shortlink;
             add_header Cache-Control max-age=60 always;
         }
         location /two/ {
             rewrite ^/two/(.*)$ /$1 break;
             shortlink;
             add_header cache-control private;
             add_header Cache-Control max-age=5;
             expires 5s;
         }
         location /unsaid/ {
             rewrite ^/unsaid/(.*)$ /$1 break;
             shortlink;
             add_header Cache-Control \"\" always;
             add_header X-Other 1 always;
         }",
    );
    for (path, expected) in [
        ("/one", &["no-store"][..]),
        ("/two", &[]),
        ("/gone", &["no-store"]),
        ("/nolink", &["no-store"]),
        ("/~", &["no-store"]),
        ("/own/one", &["max-age=60"]),
        ("/own/two", &["max-age=60"]),
        ("/own/gone", &["max-age=60"]),
        ("/own/-", &["max-age=60"]),
        ("/two/one", &["max-age=5", "private", "max-age=5"]),
        // These have no `always`.
        ("/two/gone", &["no-store"]),
        ("/unsaid/gone", &["no-store"]),
    ] {
        assert_eq!(site.get(path).all("Cache-Control"), expected, "{path}");
    }
    site.assert_ends_sound(&[]);
}

#[test]
fn a_code_that_answers_for_another_says_once_how_to_keep_its_answer() {
    let site = Site::start(
        "location / { shortlink; }
         location /chain { rewrite ^ /nolink break; shortlink; error_page 404 = /one; }",
    );
    let answer = site.get("/chain");
    assert_leads(&answer, 302, ONE);
    assert_eq!(answer.all("Cache-Control"), ["no-store"]);
}

#[test]
fn a_location_may_do_without_the_cache() {
    let site = Site::with(&SiteOptions {
        cache: "1m",
        server: "add_header X-Edge \"$shortlink_outcome/$shortlink_source\" always;
                 location / { shortlink; }
                 location /fresh/ {
                     shortlink_cache off;
                     if ($arg_kept) { shortlink_cache on; }
                     rewrite ^/fresh/(.*)$ /$1 break;
                     shortlink;
                 }",
        ..SiteOptions::default()
    });
    let edge = |path: &str| site.get(path).header("X-Edge").map(str::to_owned);
    // Not even counted for the cache, which keeps a code at its second request.
    for _ in 0..3 {
        assert_eq!(edge("/fresh/one").as_deref(), Some("redirect/redis"));
    }
    assert_eq!(edge("/one").as_deref(), Some("redirect/redis"));
    until("the worker has the link", SOON, || {
        edge("/one").as_deref() == Some("redirect/cache")
    });
    assert_eq!(edge("/fresh/one").as_deref(), Some("redirect/redis"));
    assert_eq!(edge("/fresh/one?kept=1").as_deref(), Some("redirect/cache"));
    site.assert_sound(&[]);
}
