//! Wrong settings are refused with one clear message.

use shortlink_tests::nginx::{Nginx, NginxOptions, REAL_BUDGET};
use shortlink_tests::redis::Redis;
use shortlink_tests::sidecar::Sidecar;
use shortlink_tests::{ports, stack};

/// Checks that `nginx -t` refuses a configuration in which `from` was replaced by `to`, naming
/// `expected` and the file.
fn refused(file: &str, from: &'static str, to: &str, expected: &[&str]) {
    let directory = stack::directory();
    let options = NginxOptions {
        budget: REAL_BUDGET,
        ..NginxOptions::default()
    };
    let nginx = Nginx::prepare(directory.path(), (1, 2), 3, 4, &options);
    nginx.edit(file, from, to);
    let tested = nginx.test_configuration();
    let said = String::from_utf8_lossy(&tested.stderr).into_owned();
    assert!(!tested.status.success(), "{to:?} is taken: {said}");
    for expected in expected.iter().chain(&[file]) {
        assert!(said.contains(expected), "{to:?}: no {expected:?} in {said}");
    }
}

#[test]
fn nginx_refuses_wrong_directives_with_file_line_and_what_is_allowed() {
    const DOMAIN: &str = "127.0.0.1   serving;";
    const BUDGET: &str = "budget   50ms;";
    const CHECK: &str = "shortlink_check luhn body=7 alphabet=base62;";
    let allowed_states = "active, serving, retired";
    refused(
        "domains.conf",
        DOMAIN,
        "a.example on;",
        &["\"on\"", allowed_states, "domains.conf:"],
    );
    refused(
        "domains.conf",
        DOMAIN,
        "a.example;",
        &["a.example", "no state"],
    );
    refused(
        "domains.conf",
        DOMAIN,
        "localhost serving;",
        &["localhost", "twice"],
    );
    refused(
        "domains.conf",
        "active   scheme",
        "serving scheme",
        &["no domain is active"],
    );
    for name in ["https://a.example", "a.example/x", "a.example:80"] {
        refused(
            "domains.conf",
            DOMAIN,
            &format!("{name} active;"),
            &[name, "only the host name"],
        );
    }
    refused(
        "domains.conf",
        DOMAIN,
        "a.example active port=0;",
        &["port=0", "port=1"],
    );
    refused(
        "domains.conf",
        DOMAIN,
        "a.example active scheme=ftp;",
        &["scheme=https"],
    );

    refused(
        "domains.conf",
        DOMAIN,
        "*.a.example active;",
        &["*.a.example", "can't be active"],
    );
    refused(
        "domains.conf",
        DOMAIN,
        "a.example retired page=/no/such/page.html;",
        &["/no/such/page.html", "No such file"],
    );
    refused(
        "domains.conf",
        DOMAIN,
        "certificate /live/fullchain.pem;",
        &["/live/fullchain.pem", "*"],
    );
    refused(
        "domains.conf",
        DOMAIN,
        "certificate /live/*/fullchain.pem;",
        &["certificate_key"],
    );
    for (line, expected) in [
        ("brand;", ["give the name of the brand", ":"]),
        ("brand logo=a.svg;", ["logo=a.svg", "give the name"]),
        ("brand A logo=none.svg;", ["none.svg", "can't be read"]),
        (
            "brand A logo=domains.conf;",
            ["domains.conf\"", ".svg .png"],
        ),
        ("brand A imprint=www.a.b;", ["imprint=www.a.b", "http://"]),
        ("brand A; brand A;", ["\"A\"", "twice"]),
        ("a.b serving brand=A;", ["\"A\"", "above"]),
        ("a.b serving home=/;", ["\"home=/\"", "home=<URL>"]),
    ] {
        refused("domains.conf", DOMAIN, line, &expected);
    }
    for (languages, expected) in [
        ("en e_n", ["e_n", "zh-Hant"]),
        ("en -", ["\"-\"", "zh-Hant"]),
        ("en zh EN", ["EN", "twice"]),
    ] {
        refused(
            "pages.conf",
            "shortlink_languages en",
            &format!("shortlink_languages {languages}"),
            &expected,
        );
    }
    for (words, expected) in [
        ("country", ["\"shortlink_country country\"", "variable"]),
        (
            "$host; shortlink_country $host",
            ["shortlink_country", "twice"],
        ),
    ] {
        refused(
            "shortlink.conf",
            "shortlink_visit_address full",
            &format!("shortlink_country {words}"),
            &expected,
        );
    }
    // nginx itself finds that no module has it.
    refused(
        "nginx.conf",
        "include shortlink.conf;",
        "include shortlink.conf; shortlink_country $no_such_country;",
        &["unknown", "no_such_country"],
    );
    for (words, expected) in [
        ("whole", ["\"whole\"", "full or truncated"]),
        (
            "full truncated",
            ["\"full truncated\"", "full or truncated"],
        ),
        ("full; shortlink_visit_address full", ["given", "twice"]),
    ] {
        refused(
            "shortlink.conf",
            "shortlink_visit_address full",
            &format!("shortlink_visit_address {words}"),
            &expected,
        );
    }
    refused(
        "public.conf",
        "# include tls.conf;",
        "shortlink_certificates;",
        &["certificate_key", "shortlink_domains"],
    );

    let allowed_keys = "allowed are server, sentinel, cluster";
    refused(
        "shortlink.conf",
        BUDGET,
        "buget 50ms;",
        &["\"buget\"", allowed_keys],
    );
    refused("shortlink.conf", BUDGET, "budget 0ms;", &["1ms to 10s"]);
    refused("shortlink.conf", BUDGET, "budget 11s;", &["1ms to 10s"]);
    refused("shortlink.conf", BUDGET, "budget soon;", &["1ms to 10s"]);
    refused("shortlink.conf", BUDGET, "budget;", &["one value"]);
    refused(
        "shortlink.conf",
        BUDGET,
        "prefix a;",
        &["\"prefix\" is given twice"],
    );
    refused("shortlink.conf", BUDGET, "database 65536;", &["0 to 65535"]);
    refused(
        "shortlink.conf",
        "prefix   sl:;",
        "prefix \"a{b\";",
        &["visible ASCII"],
    );
    refused(
        "shortlink.conf",
        "server   127.0.0.1:3;",
        "",
        &["server <address>"],
    );
    refused(
        "shortlink.conf",
        "server   127.0.0.1:3;",
        "server a:b;",
        &["a:b", "host:port"],
    );

    refused(
        "shortlink.conf",
        CHECK,
        "shortlink_check crc;",
        &["none, luhn, keyed"],
    );
    refused(
        "shortlink.conf",
        CHECK,
        "shortlink_check keyed;",
        &["keys=<file>"],
    );
    refused(
        "shortlink.conf",
        CHECK,
        "shortlink_check luhn keys=x;",
        &["check keys"],
    );
    refused(
        "shortlink.conf",
        CHECK,
        "shortlink_check keyed keys=missing;",
        &["missing", "No such file"],
    );
    refused(
        "shortlink.conf",
        CHECK,
        "shortlink_check luhn body=13;",
        &["1 to 12"],
    );
    refused(
        "shortlink.conf",
        CHECK,
        "shortlink_check luhn body=9-7;",
        &["1 to 12"],
    );
    refused(
        "shortlink.conf",
        CHECK,
        "shortlink_check luhn alphabet=hex;",
        &["base62, unambiguous"],
    );
    refused(
        "shortlink.conf",
        CHECK,
        "shortlink_check luhn length=7;",
        &["body=, alphabet="],
    );
    refused(
        "shortlink.conf",
        CHECK,
        "shortlink_check luhn body=7 body=8;",
        &["\"body\" of \"shortlink_check\" is given twice"],
    );
    refused(
        "shortlink.conf",
        CHECK,
        &format!("{CHECK}\n{CHECK}"),
        &["given twice"],
    );

    refused(
        "public.conf",
        "shortlink_fallback @sidecar;",
        "shortlink_fallback sidecar;",
        &["@sidecar"],
    );
    refused(
        "public.conf",
        "shortlink_fallback @sidecar;",
        "shortlink_fallback @nowhere;",
        &["@nowhere", "does not have"],
    );
    for (parameter, allowed) in [
        ("max_waiting=0%", "1% to 50%"),
        ("max_waiting=51%", "1% to 50%"),
        ("max_waiting=10", "1% to 50%"),
        ("max_fails=1001", "0 to 1000"),
        ("max_fails=", "0 to 1000"),
        ("waiting=5%", "max_waiting= and max_fails="),
        (
            "max_fails=1 max_fails=2",
            "\"max_fails\" of \"shortlink_fallback\" is given twice",
        ),
    ] {
        let line = format!("shortlink_fallback @sidecar {parameter};");
        refused(
            "public.conf",
            "shortlink_fallback @sidecar;",
            &line,
            &[allowed],
        );
    }
    refused(
        "public.conf",
        "shortlink;\n",
        "shortlink; shortlink;\n",
        &["given twice"],
    );
    const PROXY: &str = "proxy_pass http://shortlink_sidecar;";
    for (directives, expected) in [
        (
            format!("{PROXY} shortlink;\n"),
            "\"shortlink\" does not go with the directive before it",
        ),
        (format!("shortlink; {PROXY}\n"), "public.conf:"),
        (
            format!("shortlink_unavailable; {PROXY}\n"),
            "\"shortlink_unavailable\" in ",
        ),
    ] {
        refused(
            "public.conf",
            "shortlink;\n",
            &directives,
            &[expected, "such as proxy_pass"],
        );
    }
    refused(
        "public.conf",
        "shortlink;\n",
        "shortlink on;\n",
        &["no \"shortlink_redis on\""],
    );
}

#[test]
fn blocks_include_files() {
    const DOMAIN: &str = "127.0.0.1   serving;";
    let directory = stack::directory();
    let options = NginxOptions {
        budget: REAL_BUDGET,
        ..NginxOptions::default()
    };
    let nginx = Nginx::prepare(directory.path(), (1, 2), 3, 4, &options);
    let write = |name: &str, text: &str| std::fs::write(nginx.file(name), text).expect("a file");
    nginx.edit("domains.conf", DOMAIN, "include lists/*.conf;");
    nginx.edit("shortlink.conf", "budget   50ms;", "include redis.conf;");
    std::fs::create_dir(nginx.file("lists")).expect("a directory");
    write("lists/one.conf", "one.example serving;\n");
    write("lists/two.conf", "include nested;\n");
    write("nested", "two.example serving;\n");
    write("redis.conf", "budget 50ms;\n");
    let tested = nginx.test_configuration();
    assert!(tested.status.success(), "{tested:?}");
    for (name, text, expected) in [
        ("nested", "\none.example serving;\n", ["twice", "nested:2"]),
        ("nested", "a.example on;\n", ["\"on\"", "nested:1"]),
        ("nested", "include a b;\n", ["takes one file", "nested:1"]),
        (
            "nested",
            "include /no/such;\n",
            ["No such file", "nested:1"],
        ),
        (
            "redis.conf",
            "\nbuget 1ms;\n",
            ["\"buget\"", "redis.conf:2"],
        ),
        ("redis.conf", "prefix a;\n", ["given twice", "redis.conf:1"]),
    ] {
        let good = std::fs::read_to_string(nginx.file(name)).expect("a file");
        write(name, text);
        let tested = nginx.test_configuration();
        let said = String::from_utf8_lossy(&tested.stderr).into_owned();
        assert!(!tested.status.success(), "{text:?} is taken: {said}");
        for expected in expected {
            assert!(said.contains(expected), "{text:?}: {said}");
        }
        write(name, &good);
    }
}

#[test]
fn a_location_with_shortlink_needs_a_redis() {
    let directory = stack::directory();
    let options = NginxOptions {
        budget: REAL_BUDGET,
        ..NginxOptions::default()
    };
    let nginx = Nginx::prepare(directory.path(), (1, 2), 3, 4, &options);
    nginx.edit("shortlink.conf", "shortlink_redis {", "map $host $unused {");
    nginx.edit("shortlink.conf", "server   127.0.0.1:3;", "");
    nginx.edit("shortlink.conf", "budget   50ms;", "");
    let said = String::from_utf8(nginx.test_configuration().stderr).expect("text");
    assert!(said.contains("no \"shortlink_redis\""), "{said}");
}

#[test]
fn the_sidecar_refuses_wrong_settings_in_one_line() {
    let directory = stack::directory();
    let redis = Redis::start(&directory.path().join("redis"), ports::free());
    let port = ports::free();
    let mut sidecar = Sidecar::start(&directory.path().join("sidecar"), port, redis.port, "");
    assert_eq!(sidecar.stop(), Some(0));
    let config = directory.path().join("sidecar/shortlink.toml");
    let good = std::fs::read_to_string(&config).expect("a configuration");
    for (line, expected) in [
        ("[nosuch]\na = 1", vec!["nosuch"]),
        ("[codes]\nchek = \"luhn\"", vec!["chek"]),
        (
            "[codes]\ncheck = \"crc\"",
            vec!["check", "none", "luhn", "keyed"],
        ),
        ("[codes]\nbody_length = 13", vec!["body_length", "12"]),
        ("[codes]\ncheck = \"keyed\"", vec!["check_keys_file"]),
        (
            "[codes]\ncheck = \"keyed\"\ncheck_keys_file = \"/nosuchfile\"",
            vec!["/nosuchfile"],
        ),
        (
            "[links]\ndefault_redirect_status = 200",
            vec!["default_redirect_status", "301", "308"],
        ),
        (
            "[links]\nmax_target_bytes = 9000",
            vec!["max_target_bytes", "8192"],
        ),
        ("[log]\nformat = \"xml\"", vec!["format", "text", "json"]),
        ("not toml", vec!["toml"]),
    ] {
        std::fs::write(&config, format!("{good}\n{line}\n")).expect("a configuration");
        let output = sidecar.run(&["serve"]);
        let said = String::from_utf8(output.stderr).expect("text");
        assert_eq!(output.status.code(), Some(1), "{line}: {said}");
        for expected in expected {
            assert!(said.contains(expected), "{line}: no {expected:?} in {said}");
        }
        assert_eq!(said.trim_end().lines().count(), 1, "{line}: {said}");
    }
    std::fs::write(&config, &good).expect("a configuration");
    let taken = std::net::TcpListener::bind(("127.0.0.1", port)).expect("the port");
    let output = sidecar.run(&["serve"]);
    let said = String::from_utf8(output.stderr).expect("text");
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains(&port.to_string()), "{said}");
    drop(taken);
    assert_eq!(sidecar.run(&["nosuch"]).status.code(), Some(2));

    // A database that was not prepared.
    let other = good.replace("links.db", "other.db");
    std::fs::write(&config, other).expect("a configuration");
    let output = sidecar.run(&["serve"]);
    let said = String::from_utf8(output.stderr).expect("text");
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("shortlink migrate"), "{said}");
}

/// Every way in which the description of a Redis can be wrong.
#[test]
fn nginx_refuses_a_redis_that_can_not_be() {
    const SERVER: &str = "server   127.0.0.1:3;";
    let refused = |lines: &str, expected: &[&str]| {
        refused("shortlink.conf", SERVER, lines, expected);
    };
    let server = "server 127.0.0.1:1;";
    refused(
        "server 127.0.0.1:1; cluster 127.0.0.1:2;",
        &["one of", "not several"],
    );
    refused(
        "sentinel main 127.0.0.1:1; cluster 127.0.0.1:2;",
        &["not several"],
    );
    refused("sentinel main;", &["name of a master"]);
    refused("cluster;", &["addresses of some nodes"]);
    refused("", &["needs one of the lines"]);
    refused("replica 127.0.0.1:1;", &["needs one of the lines"]);
    refused(
        "cluster 127.0.0.1:1; replica 127.0.0.1:2;",
        &["\"replica\" does not go"],
    );
    refused("cluster 127.0.0.1:1; database 1;", &["only database 0"]);
    refused("server 127.0.0.1:99999;", &["invalid port"]);
    refused(
        "server unknown.invalid;",
        &["no address is known of unknown.invalid", "resolver"],
    );
    for (line, expected) in [
        ("user edge;", "\"user\" needs \"password\""),
        ("sentinel_password a;", "needs \"sentinel\""),
        ("password_file /no/such/file;", "can't be read"),
        ("heartbeat 1ms;", "50ms to 60s"),
        ("heartbeat 2m;", "50ms to 60s"),
        ("tracking maybe;", "optin, broadcast"),
        (
            "password a; password_file /no/such/file;",
            "\"password_file\" does not go with \"password\"",
        ),
        (
            "sentinel_password_file /dev/null; sentinel_password a;",
            "\"sentinel_password\" does not go with \"sentinel_password_file\"",
        ),
        ("tls maybe;", "on, off"),
        ("tls on;", "tls_trusted_certificate"),
        ("tls_name a;", "need \"tls on;\""),
        (
            "tls on; tls_trusted_certificate /no/such/file;",
            "/no/such/file",
        ),
        (
            "tls on; tls_verify off; tls_certificate /no/such/file;",
            "need each other",
        ),
        ("password a; password b;", "given twice"),
    ] {
        refused(&format!("{server} {line}"), &[expected]);
    }
}

#[test]
fn nginx_refuses_limits_that_can_not_be() {
    const CACHE: &str = "shortlink_cache 32m stale=60s;";
    const MISS_LIMIT: &str = "shortlink_miss_limit rate=60r/m burst=100 network_rate=20r/s \
                              network_burst=2000 exempt=$shortlink_exempt;";
    for (line, expected) in [
        ("shortlink_cache 63k;", "from 64k to 16384m"),
        ("shortlink_cache 17000m;", "from 64k to 16384m"),
        ("shortlink_cache much;", "from 64k to 16384m"),
        ("shortlink_cache off stale=1s;", "takes no parameters"),
        ("shortlink_cache 1m stale=25h;", "0ms to 86400s"),
        ("shortlink_cache 1m age=10ms;", "1000ms to 86400s"),
        ("shortlink_cache 1m old=1s;", "stale= and age="),
        (
            "shortlink_cache 1m age=24h stale=1s age=1s;",
            "parameter \"age\" of \"shortlink_cache\" is given twice",
        ),
        ("shortlink_cache 1m; shortlink_cache 1m;", "given twice"),
        (
            "server { shortlink_cache 1m; }",
            "in a server or location, \"shortlink_cache\" is on or off",
        ),
        (
            "server { shortlink_cache off; shortlink_cache on; }",
            "\"shortlink_cache\" is given twice here",
        ),
    ] {
        refused("shortlink.conf", CACHE, line, &[expected]);
    }
    for (line, expected) in [
        ("shortlink_miss_limit burst=1;", "needs rate="),
        (
            "shortlink_miss_limit rate=0r/s;",
            "rate \"0r/s\" is not a rate from 1r/m to 100r/s",
        ),
        ("shortlink_miss_limit rate=101r/s;", "1r/m to 100r/s"),
        ("shortlink_miss_limit rate=60;", "rate=60r/m or rate=1r/s"),
        ("shortlink_miss_limit rate=1r/m burst=0;", "a number from 1"),
        (
            "shortlink_miss_limit rate=1r/m burst=-1;",
            "a number from 1",
        ),
        (
            "shortlink_miss_limit rate=1r/m burst=1441;",
            "24 hours to be forgotten at this rate: at most 1440",
        ),
        (
            "shortlink_miss_limit rate=1r/s network_rate=59r/m;",
            "at least the rate and the burst of one address",
        ),
        (
            "shortlink_miss_limit rate=1r/s burst=50 network_burst=49;",
            "network_burst= (here 49) at least burst= (here 50)",
        ),
        (
            "shortlink_miss_limit rate=1r/s network_rate=0r/s;",
            "network_rate \"0r/s\" is not a rate from 1r/m",
        ),
        (
            "shortlink_miss_limit rate=1r/s network_burst=0;",
            "network_burst \"0\" is not a number from 1",
        ),
        (
            "shortlink_miss_limit rate=1r/s exempt=10.0.0.1;",
            "one variable, such as exempt=$trusted",
        ),
        (
            "shortlink_miss_limit rate=1r/s exempt=$a$b;",
            "one variable, such as exempt=$trusted",
        ),
        (
            "shortlink_miss_limit rate=1r/m size=1k;",
            "from 64k to 1024m",
        ),
        ("shortlink_miss_limit rate=1r/m lax;", "exempt= and strict"),
        (
            "shortlink_miss_limit rate=1r/s burst=5 rate=2r/s;",
            "\"rate\" of \"shortlink_miss_limit\" is given twice",
        ),
        (
            "shortlink_miss_limit rate=1r/s strict strict;",
            "\"strict\" of \"shortlink_miss_limit\" is given twice",
        ),
        (
            "shortlink_miss_limit off; shortlink_miss_limit off;",
            "\"shortlink_miss_limit\" is given twice",
        ),
        (
            "shortlink_miss_limit off rate=1r/s;",
            "\"shortlink_miss_limit off\" takes no parameters",
        ),
    ] {
        refused("shortlink.conf", MISS_LIMIT, line, &[expected]);
    }
    refused(
        "internal.conf",
        "shortlink_status;",
        "shortlink; shortlink_status;",
        &["does not go with"],
    );
    refused(
        "internal.conf",
        "shortlink_duplex;",
        "shortlink_duplex; shortlink_duplex;",
        &["given twice"],
    );
}

#[test]
fn nginx_refuses_wrong_parameters_of_visits() {
    const VISITS: &str = "shortlink_visits on batch=100 interval=200ms buffer=8m;";
    for (parameters, expected) in [
        ("maybe", "\"shortlink_visits\" is on or off, not \"maybe\""),
        ("off batch=1", "takes no parameters"),
        (
            "on bach=1",
            "allowed are if=, batch=, bytes=, interval=, buffer=, spool=",
        ),
        ("on batch=0", "batch \"0\" is not a number from 1 to 10000"),
        ("on batch=10001", "from 1 to 10000"),
        ("on bytes=1", "bytes \"1\" is not a size from 1k to 1m"),
        (
            "on interval=61s",
            "interval \"61s\" is not a time from 1ms to 60s",
        ),
        ("on interval=0", "from 1ms to 60s"),
        (
            "on buffer=1k",
            "buffer \"1k\" is not a size from 64k to 4096m",
        ),
        (
            "on buffer=64k bytes=33k",
            "hold at least two batches, which are 33k each",
        ),
        (
            "on streams=0",
            "streams \"0\" is not a number from 1 to 1024",
        ),
        ("on spool=", "spool= needs a directory"),
        (
            "on if=1",
            "\"if=1\" is not one variable, such as if=$trusted",
        ),
        (
            "on if=$host if=$host",
            "\"if\" of \"shortlink_visits\" is given twice",
        ),
        (
            "on batch=1 batch=1",
            "\"batch\" of \"shortlink_visits\" is given twice",
        ),
        ("on spool_size=1024m", "spool_size= needs spool=<directory>"),
        (
            "on spool=x spool_size=1k",
            "spool_size \"1k\" is not a size from 1024k to 1048576m",
        ),
    ] {
        let to = format!("shortlink_visits {parameters};");
        refused("shortlink.conf", VISITS, &to, &[expected, ":"]);
    }
    refused(
        "shortlink.conf",
        VISITS,
        &format!("{VISITS}\nshortlink_visits off;"),
        &["\"shortlink_visits\" is given twice"],
    );
    refused(
        "shortlink.conf",
        VISITS,
        "shortlink_visits;",
        &["shortlink_visits"],
    );
    for (visits, expected) in [
        (
            "on batch=1",
            "\"batch=1\" of \"shortlink_visits\" is for the http block",
        ),
        (
            "off; shortlink_visits on",
            "\"shortlink_visits\" is given twice",
        ),
    ] {
        refused(
            "public.conf",
            "shortlink;\n",
            &format!("shortlink; shortlink_visits {visits};\n"),
            &[expected, ":"],
        );
    }
}
