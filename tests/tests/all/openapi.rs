//! The service does as `/openapi.json` says: real answers of every operation are of their schemas.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use shortlink_tests::contract::Contract;
use shortlink_tests::http::{self, Connection, Response};
use shortlink_tests::openid::{OpenIdProvider, Person};
use shortlink_tests::postgres::Postgres;
use shortlink_tests::stack::{Stack, directory, text};
use shortlink_tests::wait::{SOON, until};

const JSON: (&str, &str) = ("Content-Type", "application/json");

/// A running service, what it says of itself, and keys.
struct World {
    stack: Stack,
    contract: Contract,
    /// May do everything.
    admin: String,
}

impl World {
    fn start() -> Self {
        Self::of(Stack::start())
    }

    fn of(stack: Stack) -> Self {
        let admin = stack.sidecar.make_key(&["admin"]);
        Self {
            contract: Contract::of(stack.nginx.internal_port),
            stack,
            admin,
        }
    }

    /// Sends a request through nginx' internal server, and compares the answer to the description of
    /// the operation. `path` is that of the description with its parameters filled in, and a query.
    fn send(
        &mut self,
        method: &str,
        operation: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> Response {
        let port = self.stack.nginx.internal_port;
        let request = http::request(method, path, headers, body.as_bytes());
        let answer = http::try_send(port, method, &request).expect("an answer");
        assert!(answer.header("X-Request-Id").is_some(), "{method} {path}");
        self.contract.check((method, operation), &answer);
        answer
    }

    /// Asks with the key that may do everything; the answer must have a status.
    fn ask(
        &mut self,
        operation: &str,
        filled: &str,
        body: Option<&Value>,
        status: u16,
    ) -> Response {
        let (method, path) = operation.split_once(' ').expect("a method and a path");
        let key = self.admin.clone();
        let mut headers = vec![("X-Api-Key", &*key)];
        headers.extend(body.is_some().then_some(JSON));
        let body = body.map(Value::to_string).unwrap_or_default();
        let answer = self.send(method, path, filled, &headers, &body);
        let told = String::from_utf8_lossy(&answer.body).into_owned();
        assert_eq!(answer.status, status, "{operation} {body}: {told}");
        answer
    }

    /// The examples of a request in the description.
    fn examples(&self, method: &str, path: &str) -> Vec<Value> {
        let operation = &self.contract.description()["paths"][path][method];
        let content = &operation["requestBody"]["content"]["application/json"];
        let examples = content["examples"].as_object().expect("examples").values();
        let examples: Vec<Value> = examples.map(|example| example["value"].clone()).collect();
        for example in &examples {
            let fits = self.contract.validate(&content["schema"], example);
            assert_eq!(fits, Ok(()), "{method} {path}: {example}");
        }
        examples
    }

    /// Follows a link and waits until the visit is stored.
    fn tap(&mut self, code: &str) {
        let answer = self.stack.follow(code);
        assert_eq!(answer.status, 302);
        until("the visit is stored", SOON, || {
            let path = format!("/v1/links/{code}/visits");
            let visits = self.stack.api("GET", &path, None).json();
            visits["visits"].as_array().is_some_and(|it| !it.is_empty())
        });
    }
}

/// Fills in what no link, campaign or key is called.
fn of_nothing(path: &str) -> String {
    let path = path.replace("{code}", "zzzzzzzz");
    path.replace("{id}", "zzzz").replace("{name}", "zzzz")
}

#[test]
fn every_operation_succeeds_as_it_is_described_on_sqlite() {
    every_operation_succeeds(World::start());
}

#[test]
fn every_operation_succeeds_as_it_is_described_on_postgres() {
    let directory = directory();
    let postgres = Postgres::start(directory.path());
    every_operation_succeeds(World::of(Stack::on(&postgres)));
}

fn every_operation_succeeds(mut world: World) {
    let campaign = world.examples("post", "/v1/campaigns").remove(0);
    let campaign = world
        .ask("POST /v1/campaigns", "/v1/campaigns", Some(&campaign), 201)
        .json();
    let campaign = format!("/v1/campaigns/{}", text(&campaign, "id"));
    assert_eq!(campaign, "/v1/campaigns/1", "the examples name it");
    let mut codes = Vec::new();
    for example in world.examples("post", "/v1/links") {
        let link = world.ask("POST /v1/links", "/v1/links", Some(&example), 201);
        codes.push(text(&link.json(), "shortCode"));
    }
    let same = json!({ "longUrl": "https://www.example.com/same", "dedupe": true });
    world.ask("POST /v1/links", "/v1/links", Some(&same), 201);
    world.ask("POST /v1/links", "/v1/links", Some(&same), 200);
    for status in [301, 302, 307, 308] {
        let body = json!({ "longUrl": "https://www.example.com/", "redirectStatus": status });
        let code = text(&world.stack.create(&body), "shortCode");
        let path = format!("/resolve/{code}");
        let answer = http::get(world.stack.sidecar.port, &path);
        assert_eq!(answer.status, status);
        world.contract.check(("GET", "/resolve/{path}"), &answer);
    }
    let body = json!({ "longUrl": "https://www.example.com/", "preview": { "title": "Sale" } });
    let path = format!("/resolve/{}", text(&world.stack.create(&body), "shortCode"));
    let messenger = [("User-Agent", "WhatsApp/2")];
    let answer = http::send(world.stack.sidecar.port, "GET", &path, &messenger);
    assert_eq!(answer.status, 200);
    world.contract.check(("GET", "/resolve/{path}"), &answer);
    let rows = world.examples("post", "/v1/links/batch").remove(0);
    world.ask("POST /v1/links/batch", "/v1/links/batch", Some(&rows), 200);
    let rows = world.examples("post", "/v1/messages").remove(0);
    world.ask("POST /v1/messages", "/v1/messages", Some(&rows), 200);
    let rows =
        json!([{ "conversionId": "o-1", "shortCode": codes[0], "value": "5", "currency": "EUR" }]);
    let path = "/v1/conversions";
    world.ask("POST /v1/conversions", path, Some(&rows), 200);
    let rows = world.examples("post", "/v1/receipts").remove(0);
    world.ask("POST /v1/receipts", "/v1/receipts", Some(&rows), 200);
    let key = world.admin.clone();
    let headers = [
        ("Authorization", &*format!("Bearer {key}")),
        ("Content-Type", "application/x-ndjson"),
    ];
    let lines = "{\"longUrl\":\"https://www.example.com/\"}\n{\"longUrl\":1,\"externalId\":\"x\"}\nno JSON\n";
    let batch = world.send(
        "POST",
        "/v1/links/batch",
        "/v1/links/batch",
        &headers,
        lines,
    );
    assert_eq!(String::from_utf8_lossy(&batch.body).lines().count(), 3);

    // The examples come by their names: that of a campaign's link, and of one with a target.
    let code = codes[1].clone();
    world.tap(&code);
    world.tap(&codes[0]);
    live(&mut world, &code);
    let link = format!("/v1/links/{code}");
    world.ask("GET /v1/links/{code}", &link, None, 200);
    world.ask("GET /v1/search", "/v1/search?q=example.com", None, 200);
    let templates = "/v1/utm-templates";
    let template = world.examples("put", templates).remove(0);
    let path = format!("{templates}/{}", text(&template, "name"));
    world.ask("PUT /v1/utm-templates", templates, Some(&template), 200);
    world.ask("GET /v1/utm-templates", templates, None, 200);
    world.ask("DELETE /v1/utm-templates/{name}", &path, None, 200);
    for what in ["explain", "qr"] {
        let operation = format!("GET /v1/links/{{code}}/{what}");
        world.ask(&operation, &format!("{link}/{what}"), None, 200);
    }
    let change = world.examples("patch", "/v1/links/{code}").remove(0);
    world.ask("PATCH /v1/links/{code}", &link, Some(&change), 200);
    for step in ["pause", "resume"] {
        let of_link = format!("POST /v1/links/{{code}}/{step}");
        world.ask(&of_link, &format!("{link}/{step}"), None, 200);
        let of_campaign = format!("POST /v1/campaigns/{{id}}/{step}");
        world.ask(&of_campaign, &format!("{campaign}/{step}"), None, 200);
    }
    let winner = world.examples("post", "/v1/links/{code}/winner").remove(0);
    for (of, path) in [("links/{code}", &link), ("campaigns/{id}", &campaign)] {
        let operation = format!("POST /v1/{of}/winner");
        world.ask(&operation, &format!("{path}/winner"), Some(&winner), 200);
    }
    for what in [
        "history",
        "stats?by=device,country&interval=hour",
        "visits?class=human",
        "conversions",
        "variants",
    ] {
        let name = what.split('?').next().expect("a name");
        let operation = format!("GET /v1/links/{{code}}/{name}");
        world.ask(&operation, &format!("{link}/{what}"), None, 200);
    }
    for path in [
        "/v1/links?limit=2&state=live",
        "/v1/campaigns?limit=1",
        "/v1/stats?by=domain,browser&limit=3&valueIntervals=true",
        "/v1/reports/campaigns?by=network,status&limit=2",
        "/v1/reports/links?limit=1",
        "/v1/domains",
        "/v1/domains/stats?minutes=5",
        "/v1/visits?limit=1",
        "/v1/codespace",
        "/v1/audit?limit=3",
        "/v1/keys?limit=1",
        "/healthz",
        "/readyz",
        "/metrics",
        "/openapi.json",
        "/docs",
    ] {
        let name = path.split('?').next().expect("a path");
        world.ask(&format!("GET {name}"), path, None, 200);
    }
    let path = format!("/v1/codespace/{code}");
    world.ask("GET /v1/codespace/{code}", &path, None, 200);
    for job in world.examples("post", "/v1/jobs") {
        world.ask("POST /v1/jobs", "/v1/jobs", Some(&job), 202);
    }
    let job = json!({ "action": "pause", "codes": [code], "dryRun": true });
    let job = world
        .ask("POST /v1/jobs", "/v1/jobs", Some(&job), 202)
        .json();
    let job = format!("/v1/jobs/{}", job["id"]);
    until("the job is done", SOON, || {
        world.stack.api("GET", &job, None).json()["state"] == "done"
    });
    world.ask("GET /v1/jobs", "/v1/jobs?limit=1", None, 200);
    world.ask("GET /v1/jobs/{id}", &job, None, 200);
    world.ask(
        "GET /v1/jobs/{id}/results",
        &format!("{job}/results"),
        None,
        200,
    );
    world.ask("DELETE /v1/jobs/{id}", &job, None, 200);
    for media in ["application/x-ndjson", "text/csv"] {
        let headers = [("X-Api-Key", &*key), ("Accept", media)];
        let answer = world.send("GET", "/v1/visits", "/v1/visits", &headers, "");
        assert!(
            answer
                .header("Content-Type")
                .is_some_and(|kind| kind.starts_with(media))
        );
        assert!(answer.body.len() > 100, "there are visits");
    }
    world.ask("GET /v1/campaigns/{id}", &campaign, None, 200);
    for what in [
        "links?most=1",
        "stats",
        "clicks",
        "conversions",
        "variants",
        "recipients?limit=1",
    ] {
        let name = what.split('?').next().expect("a name");
        let operation = format!("GET /v1/campaigns/{{id}}/{name}");
        world.ask(&operation, &format!("{campaign}/{what}"), None, 200);
    }
    let operation = "GET /v1/campaigns/{id}/recipients";
    for media in ["application/x-ndjson", "text/csv"] {
        let headers = [("X-Api-Key", &*key), ("Accept", media)];
        let path = format!("{campaign}/recipients");
        let answer = world.send("GET", &operation[4..], &path, &headers, "");
        assert!(answer.body.len() > 50, "there are recipients");
    }
    let change = world.examples("patch", "/v1/campaigns/{id}").remove(0);
    world.ask("PATCH /v1/campaigns/{id}", &campaign, Some(&change), 200);
    world.ask(
        "DELETE /v1/links/{code}/visits",
        &format!("{link}/visits"),
        None,
        200,
    );
    world.ask("DELETE /v1/visits", "/v1/visits?campaignId=1", None, 200);
    world.ask("DELETE /v1/links/{code}", &link, None, 200);
    world.ask("DELETE /v1/campaigns/{id}", &campaign, None, 200);

    people(&mut world);
    webhooks(&mut world);
    let new = world.examples("post", "/v1/keys").remove(0);
    let made = world
        .ask("POST /v1/keys", "/v1/keys", Some(&new), 201)
        .json();
    let path = format!("/v1/keys/{}", text(&made, "id"));
    world.ask("GET /v1/keys/{id}", &path, None, 200);
    let change = world.examples("patch", "/v1/keys/{id}").remove(0);
    world.ask("PATCH /v1/keys/{id}", &path, Some(&change), 200);
    let rotation = world.examples("post", "/v1/keys/{id}/rotate").remove(0);
    world.ask(
        "POST /v1/keys/{id}/rotate",
        &format!("{path}/rotate"),
        Some(&rotation),
        201,
    );
    world.ask("DELETE /v1/keys/{id}", &path, None, 200);

    let unseen = world.contract.unseen(|status| status < 400);
    // Only an erasure that takes seconds is answered with its job.
    let slow = [
        "DELETE /v1/links/{code}/visits: 202",
        "DELETE /v1/visits: 202",
    ];
    assert_eq!(unseen, slow, "no real answer was compared");
}

/// Has a person sign in, and does everything with them.
fn people(world: &mut World) {
    let provider = OpenIdProvider::of(&mut world.stack, OpenIdProvider::forger);
    let port = world.stack.sidecar.port;
    assert_eq!(Person::new().enter(port, &provider), None);
    let page = world.ask("GET /v1/people", "/v1/people?limit=1", None, 200);
    let path = format!("/v1/people/{}", text(&page.json()["people"][0], "id"));
    world.ask("GET /v1/people/{id}", &path, None, 200);
    for action in ["end-sessions", "block", "unblock"] {
        let operation = format!("POST /v1/people/{{id}}/{action}");
        world.ask(&operation, &format!("{path}/{action}"), None, 200);
    }
}

/// Creates a webhook, and does everything with it.
fn webhooks(world: &mut World) {
    let new = world.examples("post", "/v1/webhooks").remove(0);
    let made = world.ask("POST /v1/webhooks", "/v1/webhooks", Some(&new), 201);
    let path = format!("/v1/webhooks/{}", text(&made.json(), "id"));
    world.ask("GET /v1/webhooks", "/v1/webhooks", None, 200);
    world.ask("GET /v1/webhooks/{id}", &path, None, 200);
    let operation = "/v1/webhooks/{id}";
    let change = world.examples("patch", operation).remove(0);
    world.ask("PATCH /v1/webhooks/{id}", &path, Some(&change), 200);
    for action in ["rotate", "replay"] {
        let operation = format!("{operation}/{action}");
        let body = world.examples("post", &operation).remove(0);
        let operation = format!("POST {operation}");
        world.ask(&operation, &format!("{path}/{action}"), Some(&body), 200);
    }
    for action in ["pause", "resume", "test"] {
        let operation = format!("POST {operation}/{action}");
        world.ask(&operation, &format!("{path}/{action}"), None, 200);
    }
    let operation = format!("GET {operation}/attempts");
    world.ask(&operation, &format!("{path}/attempts?limit=1"), None, 200);
    world.ask("DELETE /v1/webhooks/{id}", &path, None, 200);
}

/// Listens to the feed until it sends a visit.
fn live(world: &mut World, code: &str) {
    let headers = [("X-Api-Key", &*world.admin)];
    let mut connection = Connection::open(world.stack.nginx.internal_port).expect("a connection");
    let request = http::request("GET", "/v1/visits/live", &headers, b"");
    connection.send(&request).expect("a connection");
    let mut answer = connection
        .receive_head()
        .expect("an answer")
        .expect("an answer");
    while !String::from_utf8_lossy(&answer.body).contains("event: begun") {
        answer
            .body
            .extend(connection.receive_chunk().expect("an event"));
    }
    world.stack.follow(code);
    while !String::from_utf8_lossy(&answer.body).contains("event: visit") {
        answer
            .body
            .extend(connection.receive_chunk().expect("an event"));
    }
    world.contract.check(("GET", "/v1/visits/live"), &answer);
}

#[test]
fn every_operation_refuses_as_it_is_described() {
    let mut world = World::start();
    let admin = world.admin.clone();
    let (linker, counter) = (
        world.stack.sidecar.make_key(&["links:read"]),
        world.stack.sidecar.make_key(&["stats:read"]),
    );
    for (method, path, operation) in world.contract.operations() {
        let filled = of_nothing(&path);
        let mut refused = |headers: &[(&str, &str)], query: &str, body: &str, status: u16| {
            let answer = world.send(&method, &path, &format!("{filled}{query}"), headers, body);
            let told = String::from_utf8_lossy(&answer.body).into_owned();
            assert_eq!(
                answer.status, status,
                "{method} {path}{query} {body}: {told}"
            );
        };
        if operation["security"] == json!([]) {
            continue;
        }
        let responses = &operation["responses"];
        let content = &operation["requestBody"]["content"];
        let is_rows = content.get("text/csv").is_some();
        let is_object = content.is_object() && responses.get("422").is_some() && !is_rows;
        refused(&[], "", "", 401);
        refused(&[("Authorization", "Bearer sk_none")], "", "", 401);
        let needed = &operation["security"][0]["apiKey"][0];
        let other = if needed == "stats:read" {
            &linker
        } else {
            &counter
        };
        refused(&[("X-Api-Key", other)], "", "", 403);
        let key = ("X-Api-Key", &*admin);
        if content.is_object() {
            refused(&[key, ("Content-Type", "text/plain")], "", "x", 415);
            refused(&[key], "", "", 415);
        }
        if path.contains("{") {
            // An object that is valid if the path exists.
            let body = match &*path {
                _ if !is_object => "",
                "/v1/keys/{id}/rotate" | "/v1/webhooks/{id}/rotate" => "{\"overlapSeconds\":1}",
                "/v1/webhooks/{id}/replay" => "{\"since\":\"2026-06-01T00:00:00Z\"}",
                _ => "{}",
            };
            // Visits outlive their link, there is a reason for what each code answers, and each can be decoded.
            let of_all = [
                "/v1/links/{code}/visits",
                "/v1/links/{code}/explain",
                "/v1/codespace/{code}",
            ];
            let is_found_by_nobody = !of_all.contains(&&*path);
            if is_found_by_nobody {
                let headers = if is_object {
                    vec![key, JSON]
                } else {
                    vec![key]
                };
                refused(&headers, "", body, 404);
            }
        }
        let body = if is_rows { "[{}]" } else { "{}" };
        refused(&[key, JSON], "?unheard=1", body, 400);
        if is_object {
            refused(&[key, JSON], "", "{", 400);
            if !path.contains('{') {
                refused(&[key, JSON], "", "{\"unheard\":1}", 422);
            }
            // A list of 100,000 codes is not too long.
            let length = if path == "/v1/jobs" {
                2_100_000
            } else {
                70_000
            };
            let long = format!("{{\"a\":\"{}\"}}", "a".repeat(length));
            refused(&[key, JSON], "", &long, 413);
        }
        if operation["parameters"]
            .to_string()
            .contains("parameters/IfMatch")
        {
            refused(&[key, JSON, ("If-Match", "1")], "", "{}", 400);
        }
        if operation["parameters"]
            .to_string()
            .contains("parameters/IdempotencyKey")
        {
            refused(
                &[key, JSON, ("Idempotency-Key", &"x".repeat(256))],
                "",
                "{}",
                400,
            );
        }
    }

    // A key's limit is taken from before anything else, also for what its scopes do not allow.
    for (method, path, operation) in world.contract.operations() {
        if operation["security"] == json!([]) {
            continue;
        }
        let body = json!({
            "name": "slow", "scopes": ["stats:read"],
            "rateLimit": { "requestsPerSecond": 1, "burst": 1 },
        });
        let slow = text(
            &world
                .ask("POST /v1/keys", "/v1/keys", Some(&body), 201)
                .json(),
            "secret",
        );
        let filled = of_nothing(&path);
        until("the limit is exceeded", SOON, || {
            let headers = [("X-Api-Key", &*slow), ("Last-Event-ID", "none")];
            world.send(&method, &path, &filled, &headers, "").status == 429
        });
    }

    // Reasons to refuse a change.
    let link = text(
        &world
            .stack
            .create(&json!({ "longUrl": "https://example.com/" })),
        "shortCode",
    );
    let path = format!("/v1/links/{link}");
    let headers = [("X-Api-Key", &*admin), JSON, ("If-Match", "\"7\"")];
    for (method, step) in [
        ("PATCH", ""),
        ("DELETE", ""),
        ("POST", "/pause"),
        ("POST", "/resume"),
    ] {
        let operation = format!("/v1/links/{{code}}{step}");
        let body = if method == "PATCH" {
            "{\"note\":\"x\"}"
        } else {
            ""
        };
        let answer = world.send(method, &operation, &format!("{path}{step}"), &headers, body);
        assert_eq!(answer.status, 412, "{method} {operation}");
    }
    let slug = json!({ "longUrl": "https://example.com/", "customSlug": link });
    world.ask("POST /v1/links", "/v1/links", Some(&slug), 409);
    world.ask("DELETE /v1/links/{code}", &path, None, 200);
    world.ask(
        "PATCH /v1/links/{code}",
        &path,
        Some(&json!({ "note": "x" })),
        409,
    );
    for (body, status) in [
        ("{\"longUrl\":\"https://example.com/1\"}", 201),
        ("{\"longUrl\":\"https://example.com/2\"}", 422),
    ] {
        let headers = [("X-Api-Key", &*admin), JSON, ("Idempotency-Key", "once")];
        let answer = world.send("POST", "/v1/links", "/v1/links", &headers, body);
        assert_eq!(answer.status, status);
    }
    let campaign = json!({ "name": "x", "longUrl": "https://example.com/{a}" });
    let campaign = world
        .ask("POST /v1/campaigns", "/v1/campaigns", Some(&campaign), 201)
        .json();
    let path = format!("/v1/campaigns/{}", text(&campaign, "id"));
    world.ask("DELETE /v1/campaigns/{id}", &path, None, 200);
    world.ask(
        "PATCH /v1/campaigns/{id}",
        &path,
        Some(&json!({ "name": "y" })),
        409,
    );
    for (code, status) in [("zzzzzzzz", 404), (&*link, 410)] {
        let answer = http::get(world.stack.sidecar.port, &format!("/resolve/{code}"));
        assert_eq!(answer.status, status);
        world.contract.check(("GET", "/resolve/{path}"), &answer);
    }

    let seen = world.contract.problems();
    for name in [
        "forbidden",
        "idempotency-key-reused",
        "malformed",
        "not-found",
        "not-json",
        "not-rows",
        "other-revision",
        "query",
        "rate-limited",
        "revoked",
        "taken",
        "too-large",
        "unauthorized",
        "validation",
    ] {
        assert!(seen.contains(name), "{name} was not compared: {seen:?}");
    }
    let common = world
        .contract
        .unseen(|status| matches!(status, 401 | 403 | 413 | 415 | 429));
    assert_eq!(common, Vec::<String>::new());
}

/// Bodies are read by hand, and their schemas are written by hand: both must know the same members.
#[test]
fn bodies_have_just_the_members_that_are_described() {
    let mut world = World::start();
    let link = text(
        &world
            .stack
            .create(&json!({ "longUrl": "https://example.com/" })),
        "shortCode",
    );
    let campaign = json!({ "name": "x", "longUrl": "https://example.com/" });
    let campaign = text(
        &world
            .stack
            .api("POST", "/v1/campaigns", Some(&campaign))
            .json(),
        "id",
    );
    let key = json!({ "name": "x", "scopes": ["links:read"] });
    let key = text(
        &world
            .ask("POST /v1/keys", "/v1/keys", Some(&key), 201)
            .json(),
        "id",
    );
    let webhook = world.examples("post", "/v1/webhooks").remove(0);
    let webhook = world.ask("POST /v1/webhooks", "/v1/webhooks", Some(&webhook), 201);
    let webhook = text(&webhook.json(), "id");
    let mut bodies = Vec::new();
    for (method, path, operation) in world.contract.operations() {
        let has_pointers = operation["responses"].get("422").is_some();
        if let (Some(members), true) = (world.contract.members(&operation), has_pointers) {
            bodies.push((method, path, operation, members));
        }
    }
    assert_eq!(bodies.len(), 15);
    let names: BTreeSet<String> = bodies.iter().flat_map(|it| it.3.keys().cloned()).collect();
    let unheard = ["unheard", "shortCode", "state", "title"].map(str::to_owned);
    for (method, path, operation, members) in &bodies {
        let id = match path.split('/').nth(2) {
            Some("keys") => &key,
            Some("webhooks") => &webhook,
            _ => &campaign,
        };
        let filled = path.replace("{code}", &link).replace("{id}", id);
        let name = format!("{method} {path}");
        let content = &operation["requestBody"]["content"]["application/json"];
        for member in names.iter().chain(&unheard) {
            // A list of a list is good for none of them.
            let body = json!({ member: [[1]] });
            let problem = world.ask(&name, &filled, Some(&body), 422).json();
            let errors = problem["errors"].as_array().expect("errors");
            let is_unknown = errors.iter().any(|error| {
                error["pointer"] == format!("/{member}") && error["detail"] == "is not known"
            });
            assert_eq!(
                is_unknown,
                !members.contains_key(member),
                "{name} {member}: {problem}"
            );
            let refused = world.contract.validate(&content["schema"], &body);
            assert!(refused.is_err(), "{name}: {body} is of the schema");
        }
    }
}
