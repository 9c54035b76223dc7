use std::io::Write;

use secrecy::ExposeSecret;
use shortlink_core::ended::EndedDays;
use shortlink_core::visit::address::AddressPolicy;
use shortlink_enrich::geo::GeoFiles;

use super::*;

/// The settings of a file and environment, or the message that they are refused with, causes
/// included.
fn load(file: Option<&str>, environment: &[(&str, &str)]) -> Result<Config, String> {
    let environment = environment
        .iter()
        .map(|&(name, value)| (name.to_owned(), value.to_owned()));
    let file = file.map(|text| {
        let mut file = tempfile::NamedTempFile::new().expect("a temporary file");
        file.write_all(text.as_bytes()).expect("space for the file");
        file
    });
    let path = file.as_ref().map(tempfile::NamedTempFile::path);
    Config::load(path, environment).map_err(|error| format!("{error:#}"))
}

#[test]
fn the_defaults_are_what_the_documentation_promises() {
    let config = load(None, &[]).expect("good defaults");
    assert_eq!(config.http.listen.to_string(), "127.0.0.1:8090");
    assert_eq!(config.http.body_limit_bytes, 65536);
    assert_eq!(config.http.shutdown_grace, Duration::from_secs(10));
    assert_eq!(config.redis.prefix, KeyPrefix::default());
    assert_eq!(config.redis.timeout, Duration::from_millis(250));
    assert_eq!(config.redis.ended_days, EndedDays(7));
    assert_eq!(config.codes.rules, CodeRules::default());
    assert!(
        config
            .codes
            .reserved
            .contain(&"API".parse().expect("a code"))
    );
    assert_eq!(config.links.redirect_status, RedirectStatus::Found);
    assert_eq!(config.links.policy, TargetPolicy::default());
    assert_eq!(config.links.domains, TargetDomains::default());
    assert_eq!(config.links.negative_ttl_s, 30);
    assert_eq!(config.log.format, LogFormat::Text);
    assert_eq!(config.log.level, LevelFilter::INFO);
}

#[test]
fn the_environment_outranks_the_file_and_the_file_the_defaults() {
    let file = "[http]\nlisten = \"[::1]:1\"\nbody_limit_bytes = 2048\n[log]\nlevel = \"warn\"\n";
    let config = load(
        Some(file),
        &[
            ("SHORTLINK_HTTP__LISTEN", "127.0.0.1:2"),
            ("SHORTLINK_CODES__RESERVED", "one, two,"),
            ("SHORTLINK_LINKS__ALLOW_PRIVATE_TARGETS", "true"),
            (
                "SHORTLINK_LINKS__DENIED_DOMAINS",
                "Bad.example, =b\u{fc}cher.example",
            ),
            // Not settings: no two underscores, or another program's.
            ("SHORTLINK_CONFIG", "whatever"),
            ("PATH", "/bin"),
        ],
    )
    .expect("good settings");
    assert_eq!(config.http.listen.to_string(), "127.0.0.1:2");
    assert_eq!(config.http.body_limit_bytes, 2048);
    assert_eq!(config.log.level, LevelFilter::WARN);
    assert!(config.links.policy.allow_private);
    let denied: Vec<String> = config
        .links
        .domains
        .denied
        .iter()
        .map(|rule| rule.to_string())
        .collect();
    assert_eq!(denied, ["bad.example", "=xn--bcher-kva.example"]);
    for (word, reserved) in [("one", true), ("two", true), ("api", false)] {
        let code = word.parse().expect("a code");
        assert_eq!(config.codes.reserved.contain(&code), reserved, "{word}");
    }
}

#[test]
fn database_url_outranks_everything_unless_it_is_empty() {
    for (value, url) in [
        ("sqlite:other.db", "sqlite:other.db"),
        ("", "sqlite:mine.db"),
    ] {
        let config = load(
            None,
            &[
                ("DATABASE_URL", value),
                ("SHORTLINK_DATABASE__URL", "sqlite:mine.db"),
            ],
        )
        .expect("good settings");
        assert_eq!(config.database.url.expose_secret(), url);
    }
}

#[test]
fn a_replica_belongs_to_postgresql() {
    let primary = "postgres://primary/links";
    let load = |url, replica, lag| {
        let variables = [
            ("DATABASE_URL", url),
            ("SHORTLINK_DATABASE__REPLICA_URL", replica),
            ("SHORTLINK_DATABASE__REPLICA_MAX_LAG_S", lag),
        ];
        load(None, &variables)
    };
    let config = load(primary, "", "10").expect("no replica");
    assert!(config.database.replica.is_none());
    let url = "postgres://u:secret@h1,h2:5433/links?target_session_attrs=standby";
    let config = load(primary, url, "7").expect("a replica");
    let replica = config.database.replica.expect("a replica");
    assert_eq!(replica.url.expose_secret(), url);
    assert_eq!(replica.state.max_lag(), Duration::from_secs(7));
    for (url, replica, lag, expected) in [
        ("sqlite:links.db", url, "7", "replica_url must be empty"),
        (
            primary,
            "secret",
            "7",
            "must begin with postgres: or postgresql:",
        ),
        (
            primary,
            "sqlite:secret.db",
            "7",
            "must begin with postgres:",
        ),
        (
            primary,
            "postgres://u:secret@h/links?target_session_attrs=primary",
            "7",
            "is \"primary\", but must be any or standby or prefer-standby or read-only",
        ),
        (primary, url, "1", "replica_max_lag_s"),
        (primary, url, "601", "replica_max_lag_s"),
    ] {
        let said = load(url, replica, lag).expect_err(replica);
        assert!(said.contains(expected), "{said}");
        assert!(!said.contains("secret"), "{said}");
    }
}

#[test]
fn the_scheme_of_the_database_is_one_that_there_is() {
    for url in [
        "sqlite:links.db",
        "postgres://host/links",
        "postgresql://user:secret@host/links",
    ] {
        assert!(load(None, &[("DATABASE_URL", url)]).is_ok(), "{url}");
    }
    for url in [
        "mysql://user:secret@host/links",
        "secret",
        "/secret.db",
        ":",
    ] {
        let said = load(None, &[("DATABASE_URL", url)]).expect_err(url);
        assert!(said.contains("sqlite:, postgres: or postgresql:"), "{said}");
        assert!(said.contains("database.url"), "{said}");
        assert!(!said.contains("secret"), "{said}");
    }
}

#[test]
fn people_sign_in_at_one_provider_or_at_none() {
    assert!(load(None, &[]).expect("defaults").sign_in.openid.is_none());
    let good = [
        (
            "SHORTLINK_SIGN_IN__ISSUER",
            "https://id.example.com/realms/main",
        ),
        ("SHORTLINK_SIGN_IN__CLIENT_ID", "shortlink"),
        (
            "SHORTLINK_SIGN_IN__CONSOLE_URL",
            "https://links.example.com",
        ),
        ("SHORTLINK_SIGN_IN__ROLES", "staff=viewer, CN=Ops=admin"),
    ];
    let config = load(None, &good).expect("good settings");
    let openid = config.sign_in.openid.expect("a provider");
    assert_eq!(openid.options.issuer.as_str(), good[0].1);
    let redirect = "https://links.example.com/console/sign-in/callback";
    assert_eq!(openid.options.redirect_url.as_str(), redirect);
    let roles: Vec<String> = openid.rules.roles.iter().map(|it| it.to_string()).collect();
    assert_eq!(roles, ["staff=viewer", "CN=Ops=admin"]);
    for (key, value, expected) in [
        ("ISSUER", "http://id.example.com", "a URL of https"),
        ("ISSUER", "https://id.example.com?x=y", "a URL of https"),
        ("CONSOLE_URL", "", "without a path"),
        ("CONSOLE_URL", "http://links.example.com", "without a path"),
        (
            "CONSOLE_URL",
            "https://links.example.com/console",
            "without a path",
        ),
        ("CLIENT_ID", "", "must be set"),
        ("ROLES", "", "must have an item"),
        ("ROLES", "staff=owner", "viewer, marketer, operator, admin"),
        ("GROUPS_CLAIM", "", "the name of a claim"),
        ("NAME", "", "1 to 60 characters"),
        ("CLIENT_SECRET_FILE", "/nonexistent", "can't be read"),
        ("SESSION_HOURS", "0", "1 to 720"),
        ("IDLE_MINUTES", "4", "5 to 43200"),
    ] {
        let name = format!("SHORTLINK_SIGN_IN__{key}");
        let mut variables = good.to_vec();
        variables.retain(|(it, _)| *it != name);
        variables.push((&name, value));
        let refused = load(None, &variables).expect_err(value);
        let setting = format!("sign_in.{}", key.to_lowercase());
        assert!(
            refused.contains(&setting) && refused.contains(expected),
            "{refused}"
        );
    }
}

#[test]
fn what_is_wrong_is_refused_by_name_with_what_is_allowed() {
    for (file, environment, words) in [
        ("[htpp]\nlisten = \"\"", None, &["[htpp]", "http, "][..]),
        ("listen = \"127.0.0.1:1\"", None, &["[listen]"]),
        ("http = 1", None, &["http", "a table"]),
        ("[http]\nlistn = \"\"", None, &["http.listn", "listen, "]),
        ("[http]\nlisten = 8090", None, &["http.listen", "a text"]),
        (
            "[http]\nlisten = \"localhost\"",
            None,
            &["http.listen", "127.0.0.1:8090"],
        ),
        (
            "[http]\nbody_limit_bytes = 1",
            None,
            &["http.body_limit_bytes", "1024 to 16777216"],
        ),
        (
            "[redis]\ntimeout_ms = -1",
            None,
            &["redis.timeout_ms", "10 to 60000"],
        ),
        (
            "[redis]\ntopology = \"ring\"",
            None,
            &["redis.topology", "server, sentinel, cluster"],
        ),
        (
            "[redis]\ntopology = \"sentinel\"",
            None,
            &["redis.nodes", "sentinel"],
        ),
        (
            "[redis]\nnodes = [\"127.0.0.1:1\"]",
            None,
            &["redis.nodes", "empty"],
        ),
        (
            "[redis]\ntopology = \"cluster\"\nnodes = [\"127.0.0.1\"]",
            None,
            &["redis.nodes", "host:port"],
        ),
        (
            "[redis]\nprefix = \"{a}\"",
            None,
            &["redis.prefix", "without {"],
        ),
        (
            "[codes]\nalphabet = \"hex\"",
            None,
            &["codes.alphabet", "base62, unambiguous"],
        ),
        (
            "[codes]\nbody_length = 13",
            None,
            &["codes.body_length", "1 to 12"],
        ),
        (
            "[codes]\ncheck = \"crc\"",
            None,
            &["codes.check", "none, luhn, keyed"],
        ),
        (
            "[codes]\ncheck = \"keyed\"",
            None,
            &["codes.check_keys_file", "keyed"],
        ),
        (
            "[codes]\nreserved = [1]",
            None,
            &["codes.reserved", "a list of texts"],
        ),
        (
            "[codes]\ncheck = \"keyed\"\ncheck_keys_file = \"/nowhere\"",
            None,
            &["codes.check_keys_file", "/nowhere", "No such file"],
        ),
        (
            "[codes]\ncheck = \"keyed\"\ncheck_keys_file = \"Cargo.toml\"",
            None,
            &["codes.check_keys_file", "Cargo.toml", "line 1"],
        ),
        (
            "[visits]\nclickhouse = \"http://clickhouse/visits\"",
            None,
            &["visits.clickhouse", "clickhouse://user:password@host:8123"],
        ),
        (
            "[http]\nproxy_secret_file = \"/nowhere\"",
            None,
            &["http.proxy_secret_file", "/nowhere", "No such file"],
        ),
        (
            "[http]\nproxy_secret_file = \"Cargo.toml\"",
            None,
            &["http.proxy_secret_file", "X-Shortlink-Secret"],
        ),
        (
            "[codes]\nblocklist_file = \"/nowhere\"",
            None,
            &["codes.blocklist_file", "/nowhere", "No such file"],
        ),
        (
            "[codes]\nblocklist_file = \"Cargo.toml\"",
            None,
            &["codes.blocklist_file", "line 1", "[package]"],
        ),
        (
            "[links]\ndefault_redirect_status = 303",
            None,
            &["links.default_redirect_status", "301, 302, 307, 308"],
        ),
        (
            "[links]\nallowed_domains = [\"example.com\", \"*.example.org\"]",
            None,
            &["links.allowed_domains", "*.example.org", "=example.com"],
        ),
        (
            "[links]\ndenied_domains = [\"https://example.com/\"]",
            None,
            &["links.denied_domains", "https://example.com/"],
        ),
        (
            "[links]\nmax_target_bytes = 8193",
            None,
            &["links.max_target_bytes", "8192"],
        ),
        (
            "[links]\nmin_target_bytes = 8193",
            None,
            &["links.min_target_bytes", "8192"],
        ),
        (
            "[links]\nnegative_ttl_s = 86401",
            None,
            &["links.negative_ttl_s", "86400"],
        ),
        (
            "[redis]\nended_days = 100001",
            None,
            &["redis.ended_days", "100000"],
        ),
        (
            "[log]\nformat = \"xml\"",
            None,
            &["log.format", "text, json"],
        ),
        (
            "[log]\nlevel = \"loud\"",
            None,
            &["log.level", "error, warn"],
        ),
        ("[log", None, &["not valid TOML", "line 1"]),
        (
            "",
            Some(("SHORTLINK_HTTP__LISTN", "x")),
            &["SHORTLINK_HTTP__LISTN", "listen, "],
        ),
        (
            "",
            Some(("SHORTLINK_HTP__LISTEN", "x")),
            &["SHORTLINK_HTP__LISTEN", "http, "],
        ),
        (
            "",
            Some(("SHORTLINK_REDIS__TIMEOUT_MS", "1s")),
            &["redis.timeout_ms", "a whole number"],
        ),
        (
            "",
            Some(("SHORTLINK_REDIS__TIMEOUT_MS", "1")),
            &["redis.timeout_ms", "10 to"],
        ),
    ] {
        let message = load(Some(file), environment.as_slice()).expect_err(file);
        for word in words {
            assert!(message.contains(word), "{message:?} lacks {word:?}");
        }
    }
}

#[test]
fn debug_output_keeps_urls_to_itself() {
    let environment = [("SHORTLINK_REDIS__URL", "redis://:hunter2@localhost")];
    let config = load(None, &environment).expect("good settings");
    assert!(!format!("{config:?}").contains("hunter2"));
}

#[test]
fn visits_keep_little_and_have_no_place_by_default() {
    let config = load(None, &[]).expect("good defaults");
    assert_eq!(config.visits.address, AddressPolicy::Truncated);
    let nothing = GeoFiles {
        language: "en".to_owned(),
        ..GeoFiles::default()
    };
    assert_eq!(config.visits.geo, nothing);
    assert_eq!(config.visits.geo_check, Duration::from_secs(5));
    let judge_after = Some(jiff::SignedDuration::from_mins(2));
    assert_eq!(config.visits.judge_after, judge_after);
    assert_eq!(config.visits.remembered_agents, 10_000);
    let live = config.visits.live;
    assert_eq!((live.listeners, live.visits_per_s), (16, 100));
}

#[test]
fn settings_of_visits_are_read() {
    let file = "[visits]\naddress = \"none\"\ngeo_database = \"/geo/city.mmdb\"\n\
                asn_database = \"asn.mmdb\"\ngeo_language = \"zh-CN\"\ngeo_check_s = 60\n";
    let regions = ("SHORTLINK_VISITS__IP2REGION", "v4.xdb, v6.xdb");
    let config = load(Some(file), &[regions]).expect("good settings");
    assert_eq!(config.visits.address, AddressPolicy::None);
    let geo = config.visits.geo;
    assert_eq!(geo.geo_database, Some("/geo/city.mmdb".into()));
    assert_eq!(geo.asn_database, Some("asn.mmdb".into()));
    assert_eq!(geo.ip2region, [PathBuf::from("v4.xdb"), "v6.xdb".into()]);
    assert_eq!(geo.language, "zh-CN");
    assert_eq!(config.visits.geo_check, Duration::from_secs(60));
}

#[test]
fn bad_settings_of_visits_are_refused_with_what_is_allowed() {
    for (key, value, message) in [
        (
            "ADDRESS",
            "hashed",
            "visits.address is \"hashed\", but must be one of truncated, whole, none",
        ),
        (
            "IP2REGION",
            "a,b,c",
            "visits.ip2region is \"a, b, c\", but must be a list of at most two files, one for \
             IPv4 and one for IPv6",
        ),
        (
            "GEO_LANGUAGE",
            "",
            "visits.geo_language is \"\", but must be a language as databases name it, like en or \
             zh-CN",
        ),
        (
            "GEO_CHECK_S",
            "0",
            "visits.geo_check_s is \"0\", but must be a whole number from 1 to 86400",
        ),
        (
            "JUDGE_AFTER_S",
            "3601",
            "visits.judge_after_s is \"3601\", but must be a whole number from 0 to 3600",
        ),
        (
            "REMEMBERED_AGENTS",
            "0",
            "visits.remembered_agents is \"0\", but must be a whole number from 1 to 1000000",
        ),
        (
            "LIVE_LISTENERS",
            "1001",
            "visits.live_listeners is \"1001\", but must be a whole number from 0 to 1000",
        ),
        (
            "LIVE_PER_S",
            "0",
            "visits.live_per_s is \"0\", but must be a whole number from 1 to 10000",
        ),
    ] {
        let name = format!("SHORTLINK_VISITS__{key}");
        let refused = load(None, &[(&name, value)]).expect_err("a bad setting");
        assert_eq!(refused, message);
    }
}

#[test]
fn unvisited_links_expire_only_if_it_is_known_for_long_enough_what_was_recorded() {
    let config = load(None, &[]).expect("good defaults");
    let days = |days: i64| Some(jiff::SignedDuration::from_hours(24 * days));
    assert_eq!(config.visits.expire_unvisited_after_days, None);
    assert_eq!(config.visits.minutes_retention, days(35));
    assert_eq!(config.visits.hours_retention, days(800));
    let expire = ("SHORTLINK_VISITS__EXPIRE_UNVISITED_AFTER_DAYS", "180");
    let config = load(None, &[expire]).expect("good settings");
    assert_eq!(config.visits.expire_unvisited_after_days, Some(180));
    let hours = "SHORTLINK_VISITS__HOURS_RETENTION_DAYS";
    let refused = load(None, &[expire, (hours, "180")]).expect_err("too short");
    assert!(
        refused.contains("less than visits.hours_retention_days (180)"),
        "{refused}"
    );
    let config = load(None, &[expire, (hours, "0")]).expect("good settings");
    assert_eq!(config.visits.hours_retention, None);
}
