//! lua-nginx-module works with a location with `shortlink`.
//!
//! It is the one of Debian, which only Debian's nginx loads, or that of OpenResty, which is linked into its nginx.
//! `scripts/test-nginx` leaves these tests out for others.

use std::fs;
use std::sync::LazyLock;

use shortlink_tests::http::{self, Connection, Response};
use shortlink_tests::site::{ONE, Site, SiteOptions, TWO};
use shortlink_tests::wait::{SOON, until};

/// The directives that load the module, where the variable `SHORTLINK_LUA_MODULES` has no others: OpenResty needs none.
static MODULES: LazyLock<String> = LazyLock::new(|| {
    std::env::var("SHORTLINK_LUA_MODULES").unwrap_or_else(|_| {
        "load_module /usr/lib/nginx/modules/ndk_http_module.so;
         load_module /usr/lib/nginx/modules/ngx_http_lua_module.so;"
            .to_owned()
    })
});

/// The module's own line in the log when it is loaded.
const OF_LUA_ITSELF: &str = "detected a LuaJIT version which is not OpenResty's";

fn start(server: &str) -> Site {
    Site::with(&SiteOptions {
        top: &MODULES,
        server,
        ..SiteOptions::default()
    })
}

fn body(answer: &Response) -> String {
    String::from_utf8_lossy(&answer.body).into_owned()
}

#[test]
fn lua_reads_what_the_edge_found_when_it_answers_and_when_it_logs() {
    let site = start(
        "location / {
             shortlink;
             shortlink_fallback @fallback;
             header_filter_by_lua_block {
                 local var = ngx.var
                 ngx.header['X-Lua'] = (var.shortlink_code or '-') .. ' '
                     .. (var.shortlink_outcome or '') .. ' '
                     .. (var.shortlink_source or '') .. ' '
                     .. (var.shortlink_target or '-') .. ' '
                     .. (var.shortlink_domain_state or '')
             }
             log_by_lua_block {
                 local var = ngx.var
                 ngx.log(ngx.WARN, 'seen ', var.shortlink_code, ' ', var.shortlink_outcome, ' ',
                     var.shortlink_source, ' ', var.shortlink_target, ' end')
             }
         }
         location @fallback {
             content_by_lua_block {
                 ngx.say(ngx.var.shortlink_code, ' ', ngx.var.shortlink_outcome)
             }
             log_by_lua_block {
                 ngx.log(ngx.WARN, 'seen ', ngx.var.shortlink_code, ' ', ngx.var.shortlink_outcome,
                     ' ', ngx.var.shortlink_source, ' fallback end')
             }
         }",
    );
    for (path, header, log) in [
        (
            "/one",
            format!("one redirect redis {ONE} active"),
            format!("seen one redirect redis {ONE} end"),
        ),
        (
            "/gone",
            "gone gone redis - active".to_owned(),
            "seen gone gone redis nil end".to_owned(),
        ),
        (
            "/~",
            "- malformed none - active".to_owned(),
            "seen nil malformed none nil end".to_owned(),
        ),
    ] {
        assert_eq!(site.get(path).header("X-Lua"), Some(&*header), "{path}");
        until(&log, SOON, || site.nginx.error_log().contains(&log));
    }
    assert_eq!(body(&site.get("/nosuchone")), "nosuchone miss\n");
    let log = "seen nosuchone miss fallback fallback end";
    until(log, SOON, || site.nginx.error_log().contains(log));
    site.assert_ends_sound(&[OF_LUA_ITSELF]);
}

#[test]
fn lua_decides_before_the_code_is_followed() {
    let site = start(
        "location / {
             shortlink;
             access_by_lua_block {
                 if ngx.var.arg_wait then ngx.sleep(0.001) end
                 if ngx.var.arg_no then ngx.exit(ngx.HTTP_FORBIDDEN) end
                 if ngx.var.arg_away then ngx.redirect('https://example.com/away') end
             }
         }
         location /uri {
             rewrite_by_lua_block { ngx.req.set_uri('/' .. ngx.var.arg_code, false) }
             shortlink;
         }
         location /jump { rewrite_by_lua_block { ngx.req.set_uri('/one', true) } }
         location /exec { content_by_lua_block { ngx.sleep(0.001) ngx.exec('/two') } }
         location /named { content_by_lua_block { ngx.exec('@short') } }
         location @short { rewrite ^ /one break; shortlink; }",
    );
    let gets = site.redis.reads();
    assert_eq!(site.get("/one?no=1").status, 403);
    assert_eq!(site.get("/one?no=1&wait=1").status, 403);
    let away = site.get("/one?away=1");
    assert_eq!(
        (away.status, away.location()),
        (302, Some("https://example.com/away"))
    );
    assert_eq!(site.redis.reads(), gets);
    for (path, status, target) in [
        ("/one", 302, ONE),
        ("/one?wait=1", 302, ONE),
        ("/uri?code=two", 301, TWO),
        ("/jump", 302, ONE),
        ("/exec", 301, TWO),
        ("/named", 302, ONE),
    ] {
        let answer = site.get(path);
        assert_eq!(
            (answer.status, answer.location()),
            (status, Some(target)),
            "{path}"
        );
        assert_eq!(answer.header("X-Edge"), Some("redirect/redis"), "{path}");
    }
    site.assert_ends_sound(&[OF_LUA_ITSELF]);
}

#[test]
fn lua_changes_the_target_of_a_redirect() {
    let site = start(
        "location / {
             shortlink;
             header_filter_by_lua_block {
                 if ngx.status == 302 then
                     ngx.header['Location'] = ngx.header['Location'] .. '?from=lua'
                     ngx.header['X-Was'] = ngx.var.shortlink_target
                 end
                 if ngx.var.arg_to then ngx.header.location = ngx.var.arg_to end
                 if ngx.var.arg_drop then ngx.header['Location'] = nil end
                 if ngx.var.arg_status then ngx.status = 307 end
             }
             body_filter_by_lua_block { ngx.ctx.chunks = (ngx.ctx.chunks or 0) + 1 }
         }",
    );
    let answer = site.get("/one");
    assert_eq!(answer.location(), Some(&*format!("{ONE}?from=lua")));
    assert_eq!(answer.header("X-Was"), Some(ONE));
    let locations = |answer: &Response| answer.all("Location").len();
    assert_eq!(locations(&answer), 1);
    let answer = site.get("/two?to=/elsewhere");
    assert_eq!(locations(&answer), 1);
    assert!(
        answer
            .location()
            .is_some_and(|to| to.ends_with("/elsewhere"))
    );
    assert_eq!(locations(&site.get("/two?drop=1")), 0);
    assert_eq!(site.get("/one?status=1").status, 307);
    site.assert_ends_sound(&[OF_LUA_ITSELF]);
}

#[test]
fn lua_captures_the_answer_to_a_code() {
    let site = start(
        "location / { shortlink; }
         location /let/ { rewrite ^/let/(.*)$ /$1 break; shortlink; shortlink_fallback @let; }
         location @let { return 200 \"fallback $shortlink_code\"; }
         location /capture {
             content_by_lua_block {
                 local res = ngx.location.capture(ngx.var.arg_path)
                 ngx.say(res.status, ' ', res.header['Location'], ' [', res.body, ']')
             }
         }
         location /multi {
             lua_check_client_abort on;
             content_by_lua_block {
                 local one, two, none = ngx.location.capture_multi({
                     { '/one' }, { '/two', { method = ngx.HTTP_HEAD } }, { '/-' },
                 })
                 ngx.say(one.status, one.header.Location, two.status, two.header.Location,
                     none.status)
             }
         }
         location /post {
             content_by_lua_block {
                 local res = ngx.location.capture('/one', { method = ngx.HTTP_POST, body = 'x' })
                 ngx.say(res.status, ' ', res.header['Allow'])
             }
         }
         location /before {
             access_by_lua_block {
                 local res = ngx.location.capture('/two')
                 ngx.header['X-Before'] = res.header['Location']
             }
             rewrite ^ /one break;
             shortlink;
         }",
    );
    let capture = |path: &str| body(&site.get(&format!("/capture?path={path}")));
    for _ in 0..3 {
        assert_eq!(capture("/one"), format!("302 {ONE} []\n"));
        assert_eq!(capture("/two"), format!("301 {TWO} []\n"));
        // nginx makes its pages for the client's own request only.
        for (path, status) in [("/gone", "410"), ("/nolink", "404"), ("/~", "404")] {
            assert!(
                capture(path).starts_with(&format!("{status} nil [")),
                "{path}"
            );
        }
        assert_eq!(capture("/let/nosuchone"), "200 nil [fallback nosuchone]\n");
    }
    let answer = site.get("/multi");
    assert_eq!(body(&answer), format!("302{ONE}301{TWO}404\n"));
    assert_eq!(body(&site.get("/post")), "405 GET, HEAD\n");
    let answer = site.get("/before");
    assert_eq!((answer.status, answer.location()), (302, Some(ONE)));
    assert_eq!(answer.header("X-Before"), Some(TWO));

    // The visitor leaves while a captured code waits.
    site.redis.hang();
    let mut waiting = Vec::new();
    until("three visitors' leaving is noticed", SOON, || {
        waiting.clear();
        let mut connection = Connection::open(site.nginx.public_port).expect("a connection");
        let request = http::request("GET", "/multi", &[], b"");
        connection.send(&request).expect("sent");
        waiting.push(connection);
        site.nginx.access_log().matches("\" 499 ").count() >= 3
    });
    site.redis.go_on();
    assert_eq!(capture("/one"), format!("302 {ONE} []\n"));
    site.assert_ends_sound(&[OF_LUA_ITSELF, "lost Redis"]);
}

#[test]
fn lua_replaces_the_variables_for_the_log() {
    let site = Site::with(&SiteOptions {
        top: &MODULES,
        http: "log_format changed '$shortlink_code $shortlink_outcome $shortlink_source '
                                  '$shortlink_target';
               access_log logs/changed.log changed;",
        server: "location / {
                     shortlink;
                     log_by_lua_block {
                         ngx.var.shortlink_outcome = 'x'
                         ngx.var.shortlink_code = 'hidden'
                         ngx.var.shortlink_source = nil
                         ngx.var.shortlink_target = 'nowhere'
                     }
                 }
                 location /early/ {
                     rewrite ^/early/(.*)$ /$1 break;
                     shortlink;
                     header_filter_by_lua_block { ngx.var.shortlink_outcome = 'early' }
                 }
                 location /plain { set $shortlink_code mine; return 204; }",
        ..SiteOptions::default()
    });
    assert_eq!(site.get("/one").location(), Some(ONE));
    assert_eq!(site.get("/early/two").location(), Some(TWO));
    assert_eq!(site.get("/plain").status, 204);
    assert_eq!(
        site.log("changed.log", 3),
        [
            "hidden x - nowhere".to_owned(),
            format!("two early redis {TWO}"),
            "mine - - -".to_owned()
        ]
    );
    site.assert_ends_sound(&[OF_LUA_ITSELF]);
}

/// nginx puts a filter such as Lua's before the module, whose number is not its place then.
#[test]
fn lua_may_be_loaded_after_the_module() {
    let mut site = start("location / { shortlink; add_header Cache-Control no-cache always; }");
    // OpenResty has Lua in it, among its own modules.
    if !MODULES.trim().is_empty() {
        let conf = site.nginx.file("nginx.conf");
        let text = fs::read_to_string(&conf).expect("a configuration");
        let without = text.replace(&**MODULES, "");
        let (before, after) = without
            .split_once("ngx_http_shortlink_module.so;")
            .expect("the module");
        let late = format!("{before}ngx_http_shortlink_module.so;\n{}{after}", *MODULES);
        fs::write(&conf, late).expect("a configuration");
    }
    let tested = site.nginx.test_configuration();
    assert!(tested.status.success(), "{tested:?}");
    site.nginx.stop();
    site.nginx.start_again();
    let answer = site.get("/nosuchone");
    assert_eq!(answer.all("Cache-Control"), ["no-cache"]);
}

#[test]
fn lua_chooses_the_code_or_leaves_it_to_the_path() {
    let site = start(
        "location / {
             rewrite_by_lua_block { ngx.var.shortlink_code = ngx.var.arg_code }
             shortlink;
             shortlink_fallback @fallback;
         }
         location @fallback { return 200 \"$shortlink_code $shortlink_outcome\\n\"; }",
    );
    assert_eq!(site.get("/one?code=two").location(), Some(TWO));
    // There is no such argument, so that Lua sets the variable to nil.
    assert_eq!(site.get("/one").location(), Some(ONE));
    let answer = site.get("/nosuchone");
    assert_eq!(answer.body, b"nosuchone miss\n");
    site.assert_ends_sound(&[OF_LUA_ITSELF]);
}

#[test]
fn lua_replaces_what_the_module_says_of_caching() {
    let site = start(
        "location / {
             shortlink;
             header_filter_by_lua_block { ngx.header['Cache-Control'] = 'private' }
         }
         location /none/ {
             rewrite ^/none/(.*)$ /$1 break;
             shortlink;
             header_filter_by_lua_block { ngx.header['Cache-Control'] = nil }
         }
         location /early/ {
             rewrite ^/early/(.*)$ /$1 break;
             access_by_lua_block { ngx.header['Cache-Control'] = 'private' }
             shortlink;
         }
         location /read/ {
             rewrite ^/read/(.*)$ /$1 break;
             shortlink;
             header_filter_by_lua_block {
                 ngx.header['X-Read'] = ngx.header['Cache-Control'] .. ' ' .. ngx.header.location
             }
         }",
    );
    let caching = |path: &str| {
        let answer = site.get(path);
        let found = answer.all("Cache-Control");
        found.into_iter().map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(caching("/one"), ["private"]);
    assert_eq!(caching("/early/one"), ["private"]);
    assert_eq!(caching("/two"), ["private"]);
    assert_eq!(caching("/none/one"), [""; 0]);
    let read = site.get("/read/one");
    assert_eq!(read.header("X-Read"), Some(&*format!("no-store {ONE}")));
    site.assert_ends_sound(&[OF_LUA_ITSELF]);
}
