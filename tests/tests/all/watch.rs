//! The operator's view: alerts and dashboard use the metrics of both sides, and the other way round.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use serde_json::{Value, json};
use shortlink_tests::clickhouse::ClickHouse;
use shortlink_tests::http;
use shortlink_tests::metrics::{Metric, Page, matchers};
use shortlink_tests::postgres::Postgres;
use shortlink_tests::stack::{Stack, StackOptions, directory};
use shortlink_tests::wait::{SOON, eventually, until};
use shortlink_tests::workspace;

/// Labels that Prometheus gives to what it reads, or that rules make.
const GIVEN: [&str; 5] = ["instance", "job", "le", "alertname", "alertstate"];

/// The prefixes of our metrics: our own, and standard ones.
const OURS: [&str; 4] = ["shortlink_", "http_server_", "db_client_", "process_"];

fn file(name: &str) -> String {
    let path = workspace().join("operations").join(name);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// A metric that an expression speaks of, and what it wants of its labels.
#[derive(Debug)]
struct Mention {
    name: String,
    matchers: Vec<(String, String, String)>,
}

/// The metrics of the project in an expression, but those that rules record.
fn mentions(expression: &str) -> Vec<Mention> {
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == ':';
    let mut found = Vec::new();
    let mut rest = expression;
    while let Some(at) = rest.find(is_word) {
        rest = &rest[at..];
        let end = rest.find(|c| !is_word(c)).unwrap_or(rest.len());
        let (word, behind) = rest.split_at(end);
        rest = behind;
        if !OURS.iter().any(|ours| word.starts_with(ours)) || word.contains(':') {
            continue;
        }
        let inner = behind.strip_prefix('{').and_then(|it| it.split_once('}'));
        let matchers = matchers(inner.map_or("", |(inner, _)| inner));
        let owned = |(a, b, c): (&str, &str, &str)| (a.to_owned(), b.to_owned(), c.to_owned());
        found.push(Mention {
            name: word.to_owned(),
            matchers: matchers.map(owned).collect(),
        });
    }
    found
}

/// The labels that an expression groups by.
fn groupings(expression: &str) -> impl Iterator<Item = &str> {
    let lists = expression.split("by (").skip(1);
    let lists = lists.filter_map(|rest| rest.split(')').next());
    lists.flat_map(|list| list.split(',').map(str::trim))
}

/// The expressions of the rules.
fn expressions_of_rules() -> Vec<String> {
    let text = file("alerts.yml");
    let parts = text.split("expr:").skip(1).map(|rest| {
        let ends = [
            "\n        for:",
            "\n        labels:",
            "\n      - ",
            "\n      #",
            "\n\n",
        ];
        let end = ends.iter().filter_map(|end| rest.find(end)).min();
        rest[..end.unwrap_or(rest.len())].to_owned()
    });
    parts.collect()
}

/// Every text in the dashboard under a key.
fn texts<'v>(value: &'v Value, key: &str, found: &mut Vec<&'v str>) {
    match value {
        Value::Object(members) => {
            for (name, member) in members {
                match member {
                    Value::String(text) if name == key => found.push(text),
                    _ => texts(member, key, found),
                }
            }
        }
        Value::Array(items) => items.iter().for_each(|item| texts(item, key, found)),
        _ => {}
    }
}

fn dashboard() -> Value {
    serde_json::from_str(&file("dashboard.json")).expect("JSON")
}

/// The pages of a stack that has been used, with visits that were stored.
fn pages() -> (Page, Page) {
    let directory = directory();
    let clickhouse = ClickHouse::start(directory.path());
    let postgres = Postgres::start(&directory.path().join("postgres"));
    let mut stack = Stack::with(&StackOptions {
        sidecar: format!("[visits]\nclickhouse = \"{}\"\n", clickhouse.url()),
        database: Some(postgres.url()),
        nginx: shortlink_tests::nginx::NginxOptions {
            replace: vec![(
                "shortlink_visits on",
                "shortlink_visits on spool=spool".to_owned(),
            )],
            ..Default::default()
        },
        ..StackOptions::default()
    });
    // The primary may be its own replica.
    (stack.sidecar).read_from(&postgres.url(), Duration::from_secs(10));
    let code = stack.link("https://example.com/");
    for _ in 0..5 {
        assert_eq!(stack.follow(&code).status, 302);
    }
    assert_eq!(stack.follow("nosuchcode").status, 404);
    let read = |port: u16, path: &str| {
        let page = http::get(port, path);
        assert_eq!(page.status, 200);
        Page::read(&String::from_utf8(page.body).expect("text"))
    };
    let sidecar = eventually("visits are stored", SOON, || {
        let page = read(stack.sidecar.port, "/metrics");
        // The metrics that a slow moment of the database or of Redis leaves out are there, too.
        let names = page.names();
        let is_whole = [
            "shortlink_visit_queue_age_seconds",
            "shortlink_codes_used",
            "shortlink_outbox_waiting",
            "shortlink_replica_lag_seconds",
        ]
        .iter()
        .all(|name| names.contains(name));
        (is_whole && page.sum("shortlink_domain_visits_total") >= 5.0).then_some(page)
    });
    // Workers pass on once a second what they measure.
    let mut edge = Page::default();
    until("workers have measured", SOON, || {
        edge = read(stack.nginx.internal_port, "/edge/metrics");
        edge.sum("shortlink_spool_files_most") > 0.0
    });
    assert_eq!(edge.sum("shortlink_fallback_answers_total"), 1.0);
    (edge, sidecar)
}

#[test]
fn alerts_and_dashboard_speak_of_what_there_is_and_leave_nothing_out() {
    let (edge, sidecar) = pages();
    let all = [&edge, &sidecar];
    let board = dashboard();
    let mut shown = Vec::new();
    texts(&board, "expr", &mut shown);
    let rules = expressions_of_rules();
    assert!(rules.len() > 30 && shown.len() > 60);
    let expressions = rules
        .iter()
        .map(String::as_str)
        .chain(shown.iter().copied());
    let known: BTreeSet<&str> = all
        .iter()
        .flat_map(|page| page.names().into_iter().flat_map(|name| page.of(name)))
        .flat_map(|sample| sample.labels.keys().map(String::as_str))
        .chain(GIVEN)
        .collect();
    for expression in expressions {
        for label in groupings(expression) {
            assert!(known.contains(label), "nothing has {label}: {expression}");
        }
        for Mention { name, matchers } in mentions(expression) {
            let samples: Vec<_> = all.iter().flat_map(|page| page.of(&name)).collect();
            assert!(!samples.is_empty(), "there is no {name}: {expression}");
            for (label, operator, value) in &matchers {
                if GIVEN.contains(&label.as_str()) {
                    continue;
                }
                assert!(["=", "=~"].contains(&operator.as_str()), "{expression}");
                for value in value.split('|') {
                    let is_there = samples
                        .iter()
                        .any(|sample| sample.labels.get(label).is_some_and(|it| it == value));
                    assert!(is_there, "no {name} has {label}={value}: {expression}");
                }
            }
        }
    }
    let mentioned: BTreeSet<String> = shown
        .iter()
        .flat_map(|expression| mentions(expression))
        .map(|mention| mention.name)
        .collect();
    for name in all.iter().flat_map(|page| page.names()) {
        assert!(mentioned.contains(name), "the dashboard has no {name}");
    }
}

/// Labels whose values are not listed in the reference: any number of them, those of a version, or jobs that the
/// settings may switch off.
const OPEN: [&str; 11] = [
    "job",
    "worker",
    "version",
    "domain",
    "network",
    "host",
    "http_route",
    "http_request_method",
    "http_response_status_code",
    "db_operation_name",
    "le",
];

/// A table of what a page describes.
fn reference_of(page: &Page) -> String {
    let mut table = String::from("| Metric | Type | Labels | Meaning |\n|---|---|---|---|\n");
    for Metric { name, kind, help } in &page.metrics {
        let mut labels: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        let counted = format!("{name}_count");
        for sample in page.of(name).chain(page.of(&counted)) {
            for (label, value) in &sample.labels {
                labels.entry(label).or_default().insert(value);
            }
        }
        let labels = labels.into_iter().map(|(label, values)| {
            if OPEN.contains(&label) {
                return format!("`{label}`");
            }
            let values: Vec<String> = values.iter().map(|value| format!("`{value}`")).collect();
            format!("`{label}`: {}", values.join(", "))
        });
        let labels: Vec<String> = labels.collect();
        let labels = labels.join("; ");
        table += &format!("| `{name}` | {kind} | {labels} | {help} |\n");
    }
    table
}

#[test]
fn metrics_reference_is_what_both_sides_tell() {
    let (edge, sidecar) = pages();
    let path = workspace().join("docs/src/reference/metrics.md");
    let text = format!(
        "# Metrics\n\n\
         Everything that nginx and the sidecar report to Prometheus, for those who write queries. This page is \
         generated from the\nmetrics' own help texts. [Monitoring](../operations/monitoring.md) explains how to \
         scrape them, and has the alerts and the\ndashboard.\n\n\
         ## nginx\n\n\
         `/edge/metrics` of the internal server ([`shortlink_status`](directives.md#shortlink_status)): the counts of \
         all workers since\nnginx was started. Counters never decrease, also over reloads and crashes of workers. \
         Those of a Redis with a\n[name](directives.md#several-redis-servers) have the label `redis`.\n\n\
         {}\n\
         ## Sidecar\n\n\
         `/metrics` of each sidecar: the counts of its process, and the state of the database and of Redis as it sees \
         them. The\nnames without `shortlink_` are those that OpenTelemetry and Prometheus define.\n\n{}",
        reference_of(&edge),
        reference_of(&sidecar)
    );
    if std::env::var_os("SHORTLINK_RENEW").is_some() {
        fs::write(&path, &text).expect("the page can be written");
    }
    let kept = fs::read_to_string(&path).unwrap_or_default();
    assert!(
        kept == text,
        "docs/src/reference/metrics.md differs from the metrics: run the test again with SHORTLINK_RENEW=1"
    );
}

#[test]
fn names_are_those_of_one_side() {
    let (edge, sidecar) = pages();
    let (edge, sidecar) = (edge.names(), sidecar.names());
    let both: Vec<_> = edge.intersection(&sidecar).collect();
    // Sums over all that Prometheus scrapes would mix what differs.
    assert_eq!(both, [&"shortlink_clock_seconds"]);
}

#[test]
fn the_dashboard_can_be_imported_anywhere() {
    let board = dashboard();
    assert!(board["id"].is_null(), "Grafana gives the number");
    let mut sources = Vec::new();
    texts(&board, "uid", &mut sources);
    let own = sources.iter().filter(|uid| **uid != "${datasource}");
    assert_eq!(own.collect::<Vec<_>>(), [&"ngx-shortlink"]);
    let variables = board["templating"]["list"].as_array().expect("variables");
    let kinds: Vec<_> = variables
        .iter()
        .map(|it| (&it["name"], &it["type"]))
        .collect();
    assert_eq!(
        kinds[0],
        (&Value::from("datasource"), &Value::from("datasource"))
    );
    let panels = board["panels"].as_array().expect("panels");
    let ids: BTreeSet<u64> = panels.iter().filter_map(|it| it["id"].as_u64()).collect();
    assert_eq!(
        ids.len(),
        panels.len(),
        "each panel has a number of its own"
    );
    let mut taken = BTreeSet::new();
    for panel in panels {
        let number = |name: &str| panel["gridPos"][name].as_u64().expect("a place");
        assert!(number("x") + number("w") <= 24, "{panel}");
        for x in number("x")..number("x") + number("w") {
            for y in number("y")..number("y") + number("h") {
                assert!(
                    taken.insert((x, y)),
                    "two panels lie on each other: {panel}"
                );
            }
        }
    }
}

/// The anchor that a heading gets where Markdown is shown.
fn anchor(heading: &str) -> String {
    let kept = heading
        .chars()
        .filter(|c| c.is_alphanumeric() || " -_".contains(*c));
    kept.collect::<String>().to_lowercase().replace(' ', "-")
}

#[test]
fn each_alert_says_how_bad_it_is_and_what_to_do_and_was_tried() {
    let text = file("alerts.yml");
    let tried = file("alerts.test.yml");
    let alerts: Vec<&str> = text.split("- alert: ").skip(1).collect();
    assert!(alerts.len() >= 25);
    for alert in alerts {
        let name = alert.lines().next().expect("a name");
        let rest = alert.split("\n      - ").next().expect("the alert");
        let has_severity = ["{severity: critical}", "{severity: warning}"]
            .iter()
            .any(|severity| rest.contains(severity));
        assert!(has_severity, "{name} does not say how bad it is");
        for annotation in ["summary: '", "action: '", "runbook_url: '"] {
            assert!(rest.contains(annotation), "{name} has no {annotation}");
        }
        let link = rest.split("runbook_url: '").nth(1).expect("a link");
        let link = link.split('\'').next().expect("a link");
        let (page, section) = link.split_once('#').expect("a section of a page");
        let page = fs::read_to_string(workspace().join(page)).expect(link);
        let mut headings = page.lines().filter(|line| line.starts_with('#'));
        assert!(
            headings.any(|line| anchor(line.trim_start_matches('#').trim()) == section),
            "{name}: there is no {link}"
        );
        assert!(page.contains(name), "{link} does not speak of {name}");
        let expected = format!("alertname=\"{name}\"");
        assert!(tried.contains(&expected), "{name} is not tried");
    }
}

/// Has promtool do something in a directory.
fn promtool(directory: &Path, arguments: &[&str]) {
    let output = Command::new("promtool")
        .args(arguments)
        .current_dir(directory)
        .output()
        .expect("promtool can be run: scripts/setup installs it");
    let said = String::from_utf8_lossy(&output.stdout).into_owned()
        + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "promtool {arguments:?}: {said}");
}

#[test]
fn prometheus_can_read_what_the_dashboard_asks() {
    let board = dashboard();
    let mut shown = Vec::new();
    texts(&board, "expr", &mut shown);
    // Written as rules, which promtool reads; JSON is YAML.
    let rules: Vec<Value> = shown
        .iter()
        .enumerate()
        .map(|(place, expression)| {
            let filled = expression.replace("$__rate_interval", "5m");
            let filled = filled.replace("$edge", ".*").replace("$sidecar", ".*");
            json!({ "record": format!("panel:{place}"), "expr": filled })
        })
        .collect();
    let file = json!({ "groups": [{ "name": "panels", "rules": rules }] });
    let directory = directory();
    fs::write(directory.path().join("panels.yml"), file.to_string()).expect("a file");
    promtool(directory.path(), &["check", "rules", "panels.yml"]);
}

#[test]
fn prometheus_takes_the_rules_and_they_do_what_they_are_to() {
    let operations = workspace().join("operations");
    for arguments in [
        ["check", "rules", "alerts.yml"],
        ["test", "rules", "alerts.test.yml"],
        ["check", "config", "prometheus.yml"],
    ] {
        promtool(&operations, &arguments);
    }
}
