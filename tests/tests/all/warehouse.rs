//! Visits are exported for a data warehouse, each once: DuckDB reads the files and compares them with the API.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use serde_json::{Value, json};
use shortlink_tests::chance::Chance;
use shortlink_tests::http;
use shortlink_tests::ports;
use shortlink_tests::postgres::Postgres;
use shortlink_tests::process::Process;
use shortlink_tests::sql::Sql;
use shortlink_tests::stack::{Stack, StackOptions, directory, text};
use shortlink_tests::visits::put_of;
use shortlink_tests::wait::{SOON, pass, until};
use shortlink_tests::workspace;
use vocabulary::visit::VisitId;

/// Number of exports that are killed.
const KILLS: usize = 2;

/// Number of visits before each of them, and in a batch.
const VISITS: u64 = 1600;
const BATCH: u64 = 200;

/// Number of visits of a part: many parts.
const PART: &str = "150";

const STREAM: &str = "sl:v:{0}";

const AGENT: &str = "Mozilla/5.0 (iPhone; CPU iPhone OS 17_2 like Mac OS X) AppleWebKit/605.1.15 \
    (KHTML, like Gecko) Version/17.2 Mobile/15E148 Safari/604.1";

const DAY_MS: u64 = 86_400_000;

/// Members of a visit that the API and the files have, with their types.
const MEMBERS: [(&str, &str); 24] = [
    ("shortCode", "VARCHAR"),
    ("domain", "VARCHAR"),
    ("status", "INTEGER"),
    ("method", "VARCHAR"),
    ("class", "VARCHAR"),
    ("reason", "VARCHAR"),
    ("ruleset", "INTEGER"),
    ("visitor", "VARCHAR"),
    ("client", "VARCHAR"),
    ("country", "VARCHAR"),
    ("province", "VARCHAR"),
    ("city", "VARCHAR"),
    ("isp", "VARCHAR"),
    ("language", "VARCHAR"),
    ("device", "VARCHAR"),
    ("os", "VARCHAR"),
    ("browser", "VARCHAR"),
    ("app", "VARCHAR"),
    ("referrerHost", "VARCHAR"),
    ("referrer", "VARCHAR"),
    ("purpose", "VARCHAR"),
    ("userAgent", "VARCHAR"),
    ("clickId", "VARCHAR"),
    ("variant", "VARCHAR"),
];

/// A program of the Python environment of these tests.
fn program(name: &str) -> Command {
    let made = Command::new(workspace().join("scripts/python-environment"))
        .arg("tests/warehouse")
        .output()
        .expect("a script");
    let said = String::from_utf8_lossy(&made.stderr);
    assert!(
        made.status.success(),
        "DuckDB and moto can't be installed: {said}"
    );
    let directory = String::from_utf8(made.stdout).expect("a path");
    Command::new(Path::new(directory.trim()).join("bin").join(name))
}

/// The rows of a statement in DuckDB, in which `FILES` are the files below a directory.
fn rows(directory: &Path, statement: &str) -> Vec<Value> {
    let files = format!(
        "read_parquet('{}/day=*/*.parquet', hive_partitioning = true)",
        directory.display()
    );
    let output = program("python")
        .arg(workspace().join("tests/warehouse/query.py"))
        .arg(statement.replace("FILES", &files))
        .output()
        .expect("Python");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{statement}: {said}");
    let text = String::from_utf8(output.stdout).expect("text");
    let rows = text.lines();
    rows.map(|row| serde_json::from_str(row).expect("JSON"))
        .collect()
}

/// A stack whose visits are not judged a second time, with links of a campaign and of a customer.
struct Service {
    stack: Stack,
    codes: Vec<String>,
    campaign: String,
    stored: u64,
}

impl Service {
    fn start(postgres: Option<&Postgres>) -> Self {
        let stack = Stack::with(&StackOptions {
            sidecar: "[visits]\njudge_after_s = 0\n".to_owned(),
            database: postgres.map(Postgres::url),
            ..StackOptions::default()
        });
        let body = json!({ "name": "Spring", "longUrl": "https://e.example/{member}" });
        let answer = stack.api("POST", "/v1/campaigns", Some(&body));
        let campaign = text(&answer.json(), "id");
        let bodies = [
            json!({ "longUrl": "https://example.com/" }),
            json!({ "longUrl": "https://example.com/", "externalId": "customer-1" }),
            json!({ "campaignId": campaign, "parameters": { "member": "2" }, "externalId": "customer-2" }),
        ];
        let codes = bodies
            .iter()
            .map(|body| text(&stack.create(body), "shortCode"));
        let codes = codes.collect();
        // Visits of earlier days are of these links, too.
        let sql = Sql::of(&stack, postgres);
        sql.query(&format!(
            "UPDATE links SET created_at = created_at - {}",
            3 * DAY_MS
        ));
        Self {
            stack,
            codes,
            campaign,
            stored: 0,
        }
    }

    /// Adds visits of today and of two earlier days to the queue.
    fn visit(&mut self, visits: u64) {
        let now = 1000 * self.stack.redis.now();
        for first in (self.stored..self.stored + visits).step_by(BATCH as usize) {
            let visits = (first..first + BATCH).map(|sequence| {
                let code = self.codes[(sequence % 3) as usize].as_str();
                let time = now - sequence % 7 % 3 * DAY_MS;
                (
                    VisitId {
                        origin: 1,
                        sequence,
                    },
                    code,
                    time,
                )
            });
            put_of(self.stack.redis.port, STREAM, visits, AGENT);
        }
        self.stored += visits;
    }

    /// Waits until all visits are stored, and can be exported.
    fn settle(&mut self, sql: &Sql<'_>) {
        let stored = i64::try_from(self.stored).expect("a number");
        until("all visits are stored", SOON, || {
            sql.number("SELECT count(*) FROM visits") == stored
        });
        // A sidecar that judges no visits notes so when it starts, and then seldom.
        self.stack.sidecar.stop();
        self.stack.sidecar.start_again();
        until("nothing is to be judged", SOON, || {
            sql.number("SELECT count(*) FROM visit_stretches") == 0
        });
    }

    fn export(&self, place: &str) -> Value {
        let arguments = [
            "visits", "export", "--format", "parquet", "--json", "--out", place,
        ];
        let told = self
            .stack
            .sidecar
            .run_ok(&[&arguments[..], &["--part", PART]].concat());
        serde_json::from_str(&told).expect("JSON")
    }

    /// Checks that files have each visit once, as the API returns it.
    fn compare(&self, files: &Path) {
        let server = &self.stack.sidecar;
        let headers = [
            ("X-Api-Key", server.key.as_str()),
            ("Accept", "application/x-ndjson"),
        ];
        let answer = http::send(server.port, "GET", "/v1/visits", &headers);
        let listed = self.stack.directory().join("visits.ndjson");
        fs::write(&listed, &answer.body).expect("a file");
        let types = MEMBERS.map(|(name, kind)| format!("\"{name}\": '{kind}'"));
        let texts = ["referrer", "purpose", "userAgent"];
        let members = MEMBERS.map(|(name, _)| {
            if texts.contains(&name) {
                format!("nullif(\"{name}\", '')")
            } else {
                format!("\"{name}\"")
            }
        });
        let members = members.join(", ");
        let statement = format!(
            "WITH listed AS (SELECT epoch_ms(\"at\"), {members} FROM read_json('{}', \
             format = 'newline_delimited', columns = {{\"at\": 'TIMESTAMPTZ', {}}})), \
             exported AS (SELECT epoch_ms(\"at\"), {members} FROM FILES) SELECT \
             (SELECT count(*) FROM listed), (SELECT count(*) FROM exported), \
             (SELECT count(*) FROM (FROM listed EXCEPT ALL FROM exported)), \
             (SELECT count(DISTINCT id) FROM FILES), \
             (SELECT count(*) FROM FILES WHERE day <> CAST(epoch_ms(epoch_ms(\"at\")) AS DATE))",
            listed.display(),
            types.join(", ")
        );
        let all = self.stored;
        assert_eq!(rows(files, &statement), [json!([all, all, 0, all, 0])]);

        let classes = "SELECT class, count(*) FROM FILES GROUP BY class";
        let counted = self.stack.api("GET", "/v1/stats?interval=day", None).json();
        for row in rows(files, classes) {
            let class = row[0].as_str().expect("a class");
            assert_eq!(counted["visits"][class], row[1], "{counted}");
        }
        let joined = "SELECT \"shortCode\", \"externalId\", \"campaignId\", \
                      count(*) FROM FILES GROUP BY ALL ORDER BY 2 NULLS FIRST";
        let each = |n: u64| (0..all).filter(|sequence| sequence % 3 == n).count();
        let campaign: u64 = self.campaign.parse().expect("a number");
        assert_eq!(
            rows(files, joined),
            [
                json!([self.codes[0], null, null, each(0)]),
                json!([self.codes[1], "customer-1", null, each(1)]),
                json!([self.codes[2], "customer-2", campaign, each(2)]),
            ]
        );
    }
}

/// A member of the progress of an export.
fn progress(place: &Path, member: &str) -> i64 {
    let note = fs::read(place.join("_shortlink.json")).unwrap_or_default();
    let note: Value = serde_json::from_slice(&note).unwrap_or_default();
    note[member].as_i64().unwrap_or_default()
}

/// Exports again and again while visits arrive, and is killed meanwhile.
fn each_visit_is_exported_once(postgres: Option<&Postgres>) {
    let mut service = Service::start(postgres);
    let place = service.stack.directory().join("warehouse");
    let path = place.to_str().expect("a path").to_owned();
    let mut chance = Chance::default();
    let mut interrupted = 0;
    for kill in 0..KILLS {
        service.visit(VISITS);
        let sql = Sql::of(&service.stack, postgres);
        service.settle(&sql);
        // More arrive during the export.
        service.visit(BATCH);
        let log = service.stack.directory().join(format!("export-{kill}.log"));
        let before = progress(&place, "exported");
        let arguments = ["visits", "export", "--out", &path, "--part", PART];
        let mut export = service.stack.sidecar.begin(&arguments, &log);
        until("a part is written", SOON, || {
            progress(&place, "exported") > before
        });
        pass(Duration::from_millis(chance.below(30)));
        export.kill();
        if progress(&place, "writing") > progress(&place, "exported") {
            interrupted += 1;
        }
    }
    assert!(
        interrupted > 0,
        "every export was complete before it was killed"
    );
    let sql = Sql::of(&service.stack, postgres);
    service.settle(&sql);
    let report = service.export(&path);
    assert_eq!(report["isDone"], true, "{report}");
    assert_eq!(report["notJudged"], 0, "{report}");
    service.compare(&place);
    // Nothing is left, and nothing is written.
    let report = service.export(&path);
    assert_eq!(
        (&report["visits"], &report["files"]),
        (&json!(0), &json!(0))
    );
}

#[test]
fn an_export_has_each_visit_once_however_often_it_is_killed() {
    each_visit_is_exported_once(None);
}

#[test]
fn an_export_of_postgres_has_each_visit_once_however_often_it_is_killed() {
    let directory = directory();
    let postgres = Postgres::start(directory.path());
    each_visit_is_exported_once(Some(&postgres));
}

/// The message of an export that must fail.
fn refused(service: &Service, place: &str) -> String {
    let output = service
        .stack
        .sidecar
        .run(&["visits", "export", "--out", place]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{place}: {said}");
    assert_eq!(said.lines().count(), 1, "{said}");
    said
}

#[test]
fn a_place_that_can_not_be_written_to_is_reported() {
    let service = Service::start(None);
    let path = |name: &str| service.stack.directory().join(name).display().to_string();
    fs::write(path("file"), "").expect("a file");
    for (place, part) in [
        (
            "gs://bucket/visits".to_owned(),
            "unknown scheme; allowed are a directory, or s3://",
        ),
        ("s3:///visits".to_owned(), "names no bucket"),
        (path("file"), "can't be read: Not a directory"),
        ("/proc/warehouse".to_owned(), "can't be written"),
    ] {
        let said = refused(&service, &place);
        assert!(said.contains(part), "{place}: {said}");
    }
    // The place of another database.
    service.export(&path("warehouse"));
    let note = path("warehouse/_shortlink.json");
    let text = fs::read_to_string(&note).expect("the progress");
    for (from, to, part) in [
        (
            "\"database\":\"",
            "\"database\":\"0",
            "visits of another database",
        ),
        ("\"writing\":0", "\"writing\":9", "restored from a backup"),
        ("\"version\":1", "\"version\":2", "its version is 2"),
    ] {
        fs::write(&note, text.replace(from, to)).expect("a file");
        let said = refused(&service, &path("warehouse"));
        assert!(said.contains(part), "{said}");
    }
}

/// Sends a request to moto, which checks no signature; returns the body of the answer.
fn moto(port: u16, method: &str, path: &str) -> Vec<u8> {
    let signature = "AWS4-HMAC-SHA256 Credential=test/20260601/us-east-1/s3/aws4_request, \
                     SignedHeaders=host, Signature=0";
    let answer = http::send(port, method, path, &[("Authorization", signature)]);
    assert_eq!(answer.status, 200, "{path}");
    answer.body
}

#[test]
fn s3_has_each_visit_once_and_its_refusals_are_reported() {
    let mut service = Service::start(None);
    let port = ports::free();
    let log = service.stack.directory().join("moto.log");
    let mut command = program("moto_server");
    command.args(["-H", "127.0.0.1", "-p", &port.to_string()]);
    let mut server = Process::start("moto", &command, &log);
    server.wait_ready(|| {
        let request = http::request("GET", "/moto-api/", &[], b"");
        http::try_send(port, "GET", &request).is_ok()
    });
    let endpoint = format!("http://127.0.0.1:{port}");
    let environment = [
        ("AWS_ENDPOINT_URL", endpoint.as_str()),
        ("AWS_ENDPOINT_URL_S3", ""),
        ("AWS_ACCESS_KEY_ID", "test"),
        ("AWS_SECRET_ACCESS_KEY", "test"),
        ("AWS_REGION", "us-east-1"),
    ];
    let environment = environment.map(|(name, value)| (name.to_owned(), value.to_owned()));
    service.stack.sidecar.environment.extend(environment);
    let place = "s3://visits/of/all";

    let said = refused(&service, place);
    assert!(said.contains("the bucket does not exist"), "{said}");
    moto(port, "PUT", "/visits");
    for _ in 0..2 {
        service.visit(VISITS / 2);
        let sql = Sql::of(&service.stack, None);
        service.settle(&sql);
        let report = service.export(place);
        assert_eq!(report["visits"], VISITS / 2, "{report}");
    }
    let listing = moto(port, "GET", "/visits?list-type=2");
    let listing = String::from_utf8(listing).expect("text");
    let keys = listing.split("<Key>").skip(1);
    let keys = keys
        .filter_map(|rest| rest.split_once("</Key>"))
        .map(|(key, _)| key);
    let files = service.stack.directory().join("copy");
    for key in keys.filter(|key| key.ends_with(".parquet")) {
        let path = key.strip_prefix("of/all/").expect("the prefix");
        let file = files.join(path);
        fs::create_dir_all(file.parent().expect("a directory")).expect("a directory");
        fs::write(file, moto(port, "GET", &format!("/visits/{key}"))).expect("a file");
    }
    service.compare(&files);

    // From here on, moto checks credentials.
    let body = b"0";
    let request = http::request("POST", "/moto-api/reset-auth", &[], body);
    let answer = http::try_send(port, "POST", &request).expect("an answer");
    assert_eq!(answer.status, 200);
    let said = refused(&service, place);
    assert!(
        said.contains("access denied; check AWS_ACCESS_KEY_ID"),
        "{said}"
    );
}
