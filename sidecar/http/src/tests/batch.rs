//! `/v1/links/batch`: all formats, invalid rows, and retries.

use std::collections::HashSet;

use axum::body::{Body, Bytes};
use axum::http::Request;
use futures_util::stream;
use serde_json::{Value, json};
use shortlink_core::api_key::{KeyPolicy, Scope};
use shortlink_core::ports::MAX_TOGETHER;

use super::{Answer, NewKey, Service, new_key};

const NDJSON: &str = "application/x-ndjson";

async fn send(
    service: &Service,
    media_type: &str,
    idempotency: Option<&str>,
    body: Body,
) -> Answer {
    let mut request = Request::builder()
        .method("POST")
        .uri("/v1/links/batch")
        .header("x-api-key", &service.writer)
        .header("x-shortlink-base", "https://s.example.com")
        .header("content-type", media_type);
    if let Some(key) = idempotency {
        request = request.header("idempotency-key", key);
    }
    service.send(request.body(body).expect("a request")).await
}

/// The results of an answer in lines.
fn lines(answer: &Answer) -> Vec<Value> {
    assert_eq!(answer.status, 200);
    assert_eq!(answer.header("content-type"), Some(NDJSON));
    let text = std::str::from_utf8(&answer.body).expect("text");
    text.lines()
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect()
}

fn codes(results: &[Value]) -> Vec<String> {
    results
        .iter()
        .filter_map(|result| Some(result["link"]["shortCode"].as_str()?.to_owned()))
        .collect()
}

/// A body with `count` rows.
fn ndjson(count: usize) -> String {
    let row = |number| format!("{{\"longUrl\":\"https://example.com/{number}\"}}\n");
    (0..count).map(row).collect()
}

#[tokio::test]
async fn a_wrong_row_is_told_by_its_index_and_harms_no_other() {
    let service = Service::new().await;
    let rows = json!([
        {"longUrl": "https://example.com/0"},
        {"longUrl": "ftp://example.com/1", "redirectStatus": 299, "externalId": "one"},
        "nonsense",
        {"longUrl": "https://example.com/3", "customSlug": "three"},
        {"longUrl": "https://example.com/4", "customSlug": "three"},
        {"longUrl": "https://example.com/5", "customSlug": "api"},
        {"longUrl": "https://example.com/6"},
    ]);
    let body = Body::from(rows.to_string());
    let answer = send(&service, "application/json", None, body).await;
    assert_eq!(answer.status, 200);
    assert_eq!(answer.header("content-type"), Some("application/json"));
    let results = answer.json();
    let results = results.as_array().expect("an array");
    let told: Vec<(u64, u64)> = results
        .iter()
        .map(|result| {
            let number = |name| result[name].as_u64().expect("a number");
            (number("index"), number("status"))
        })
        .collect();
    let statuses = [201, 422, 422, 201, 409, 422, 201];
    let expected: Vec<(u64, u64)> = (0..).zip(statuses).collect();
    assert_eq!(told, expected, "{results:?}");
    assert_eq!(results[1]["externalId"], "one");
    let pointers = &results[1]["problem"]["errors"];
    assert_eq!(pointers[0]["pointer"], "/longUrl");
    assert_eq!(pointers[1]["pointer"], "/redirectStatus");
    assert_eq!(
        results[3]["link"]["shortUrl"],
        "https://s.example.com/three"
    );
    assert_eq!(results[3]["link"]["published"], true);
    assert_eq!(
        service.redis.record("three").as_deref(),
        Some("1 302 1 0 https://example.com/3")
    );
}

#[tokio::test]
async fn a_thousand_recipients_of_one_target_get_a_code_each() {
    let service = Service::new().await;
    let row = "{\"longUrl\":\"https://example.com/\",\"strategy\":\"hash\"}\n";
    let answer = send(&service, NDJSON, None, Body::from(row.repeat(1000))).await;
    let codes: HashSet<String> = codes(&lines(&answer)).into_iter().collect();
    assert_eq!(codes.len(), 1000);
}

#[tokio::test]
async fn a_full_length_is_the_fault_of_each_request_that_asks_for_it() {
    let service = Service::new().await;
    let row = json!({"longUrl": "https://example.com/", "codeLength": 1});
    let batch = |key| {
        let body = format!("{row}\n").repeat(100);
        send(&service, NDJSON, key, Body::from(body))
    };
    for key in [None, Some("again")] {
        let results = lines(&batch(key).await);
        let full: Vec<&Value> = results.iter().filter(|it| it["status"] != 201).collect();
        assert!(full.len() > 30, "{results:?}");
        for result in full {
            assert_eq!(result["status"], 422);
            assert_eq!(result["problem"]["errors"][0]["pointer"], "/codeLength");
        }
    }
    let single = |key: Option<&str>| {
        let mut request = Request::builder()
            .method("POST")
            .uri("/v1/links")
            .header("x-api-key", &service.writer)
            .header("content-type", "application/json");
        if let Some(key) = key {
            request = request.header("idempotency-key", key);
        }
        service.send(
            request
                .body(Body::from(row.to_string()))
                .expect("a request"),
        )
    };
    for key in [None, Some("single")] {
        let answer = single(key).await;
        assert_eq!(answer.status, 422);
        assert_eq!(answer.json()["errors"][0]["pointer"], "/codeLength");
    }
}

#[tokio::test]
async fn batches_at_once_do_not_exceed_the_capacity_of_a_length() {
    let service = Service::new().await;
    // One of two codes may have a link.
    for (strategy, length, most) in [("permuted", 2, 1922), ("pool", 1, 31)] {
        let row = |n: u64| {
            let target = format!("https://example.com/{n}");
            json!({"longUrl": target, "codeLength": length, "strategy": strategy}).to_string()
        };
        let batch = || {
            let rows: Vec<String> = (0..most).map(row).collect();
            send(&service, NDJSON, None, Body::from(rows.join("\n")))
        };
        let (one, other, third) = tokio::join!(batch(), batch(), batch());
        let results = [one, other, third].map(|answer| lines(&answer));
        let count = |status| {
            let of_status = results.iter().flatten();
            of_status.filter(|it| it["status"] == status).count() as u64
        };
        assert_eq!((count(201), count(422)), (most, 2 * most), "{strategy}");
    }
}

#[tokio::test]
async fn a_full_length_is_the_fault_of_what_has_set_it() {
    let service = Service::new().await;
    let short = NewKey {
        policy: KeyPolicy {
            max_body_length: Some(1),
            ..KeyPolicy::default()
        },
        ..new_key(&[Scope::LinksWrite])
    };
    let (_, short) = service.key(1, short).await;
    let campaign = json!({
        "name": "x", "longUrl": "https://example.com/", "defaults": {"codeLength": 1},
    });
    let campaign = service.call(&service.campaigner, "POST", "/v1/campaigns", Some(campaign));
    let id = campaign.await.json()["id"].clone();
    let own = json!({"longUrl": "https://example.com/"});
    let row = json!({"longUrl": "https://example.com/", "codeLength": 1});
    let fill = format!("{row}\n").repeat(100);
    send(&service, NDJSON, None, Body::from(fill)).await;
    let of_campaign = json!({"campaignId": id});
    let both = json!({"campaignId": id, "codeLength": 1});
    for (key, body, pointer, detail) in [
        (&service.writer, &row, "/codeLength", "of this length"),
        (&service.writer, &both, "/codeLength", "of this length"),
        (&service.writer, &of_campaign, "/campaignId", "defaults"),
        (&short, &row, "/codeLength", "of this length"),
        (&short, &own, "", "policy of the API key"),
    ] {
        let single = service.call(key, "POST", "/v1/links", Some(body.clone()));
        let single = single.await.json();
        let request = Request::builder()
            .method("POST")
            .uri("/v1/links/batch")
            .header("x-api-key", key)
            .header("content-type", NDJSON)
            .body(Body::from(body.to_string()));
        let batch = service.send(request.expect("a request")).await;
        for problem in [&single, &lines(&batch)[0]["problem"]] {
            assert_eq!(problem["status"], 422, "{body}: {problem}");
            let error = &problem["errors"][0];
            assert_eq!(error["pointer"], pointer, "{body}: {problem}");
            assert!(error["detail"].to_string().contains(detail), "{problem}");
        }
    }
}

#[tokio::test]
async fn lines_of_a_part_count_as_the_console_says() {
    let service = Service::new().await;
    let part = "\"a\nb\",longUrl\n,https://example.com/\n\n,\"https://example.com/";
    let request = Request::builder()
        .method("POST")
        .uri("/v1/links/batch?columns=,longUrl")
        .header("x-api-key", &service.writer)
        .header("x-shortlink-first-line", "1001")
        .header("content-type", "text/csv")
        .body(Body::from(part));
    let results = lines(&service.send(request.expect("a request")).await);
    let told = results[1]["problem"]["errors"][0]["detail"].to_string();
    assert!(told.contains("from line 1003 to the end"), "{told}");
}

#[tokio::test]
async fn a_batch_that_can_not_be_read_right_is_refused_with_the_reason() {
    let service = Service::new().await;
    let whole = async |media_type: &str, body: &[u8]| {
        let answer = send(&service, media_type, None, Body::from(body.to_vec())).await;
        (answer.status, answer.json())
    };
    for (media_type, body, status, kind) in [
        ("text/csv", &b""[..], 422, "no-rows"),
        ("text/csv", b"longUrl\n", 422, "no-rows"),
        ("application/json", b"[]", 422, "no-rows"),
        ("application/json", b"", 422, "no-rows"),
        (NDJSON, b"\n\n", 422, "no-rows"),
        (
            "text/csv; charset=iso-8859-1",
            b"longUrl\na\n",
            415,
            "other-charset",
        ),
        (
            "text/csv;header=present; Charset=\"UTF-32\"",
            b"",
            415,
            "other-charset",
        ),
    ] {
        let (given, problem) = whole(media_type, body).await;
        assert_eq!(given, status, "{media_type}");
        let told = problem["type"].as_str().expect("a type");
        assert!(told.ends_with(kind), "{told}");
        let lists = problem["detail"]
            .to_string()
            .contains("utf-16le, utf-16be, gbk");
        assert_eq!(lists, kind == "other-charset", "{problem}");
    }
    for (body, part) in [
        (
            "longUrl,longUrl\na,b\n",
            "two columns with the name longUrl",
        ),
        ("longUrl;note\na;b\n", "delimiter=semicolon"),
        ("longUrl\tnote\na\tb\n", "delimiter=tab"),
        ("l\0o\0n\0g\0\na\n", "U+0000; if it is UTF-16, declare"),
        ("\"long\nUrl\"\na\n", "U+000A"),
        ("long\u{1}Url\na\n", "U+0001"),
        ("\"longUrl\na\n", "quotation mark that is not closed"),
    ]
    .map(|(body, part)| (body.as_bytes(), part))
    .into_iter()
    .chain([(&b"lon\xffgUrl\na\n"[..], "cannot be decoded")])
    {
        let answer = send(&service, "text/csv", None, Body::from(body.to_vec())).await;
        let results = lines(&answer);
        assert_eq!(results.len(), 1, "{body:?}");
        let detail = results[0]["problem"]["detail"].as_str().expect("a detail");
        assert!(detail.contains(part), "{detail}");
    }
}

#[tokio::test]
async fn the_first_line_is_no_row_and_none_is_lost_when_the_request_names_the_columns() {
    let service = Service::new().await;
    let row = "https://example.com/a,m-1\n";
    for (columns, first, expected) in [
        // Equal as a whole, in part, and not at all: a line of names, which the parameter replaces.
        ("longUrl,externalId", "longUrl,externalId", Ok("m-1")),
        ("longUrl,externalId", "longUrl,Kunde", Ok("m-1")),
        ("longUrl,externalId", "Ziel,Kunde", Ok("m-1")),
        ("longUrl,externalId", "Ziel, externalId ", Ok("m-1")),
        // A column that is left out contradicts nothing.
        ("longUrl,", "externalId,longUrl", Ok("")),
        (
            "longUrl,externalId",
            "externalId,longUrl",
            Err("but in column 1 of the parameter"),
        ),
        // Names that are used otherwise on purpose, since another one takes their place.
        ("longUrl,externalId", "externalId,Kunde", Ok("m-1")),
        (
            "longUrl,externalId",
            "https://example.com/b,m-0",
            Err("has a target in its first line"),
        ),
        (
            "longUrl,externalId",
            "longUrl",
            Err("another number of names"),
        ),
    ] {
        let request = Request::builder()
            .method("POST")
            .uri(format!("/v1/links/batch?columns={columns}"))
            .header("x-api-key", &service.writer)
            .header("content-type", "text/csv")
            .body(Body::from(format!("{first}\n{row}")));
        let results = lines(&service.send(request.expect("a request")).await);
        assert_eq!(results.len(), 1, "{first}: {results:?}");
        let result = &results[0];
        match expected {
            Ok(id) => {
                assert_eq!(
                    result["link"]["longUrl"], "https://example.com/a",
                    "{first}: {result}"
                );
                assert_eq!(
                    result["externalId"].as_str().unwrap_or_default(),
                    id,
                    "{first}"
                );
            }
            Err(part) => {
                let told = result["problem"]["detail"].to_string();
                assert!(
                    result["status"] == 400 && told.contains(part),
                    "{first}: {result}"
                );
            }
        }
    }
}

#[tokio::test]
async fn a_batch_ends_with_a_summary_if_it_is_asked_for() {
    let service = Service::new().await;
    let ask = async |query: &str, media_type: &str, body: &str| {
        let request = Request::builder()
            .method("POST")
            .uri(format!("/v1/links/batch?{query}"))
            .header("x-api-key", &service.writer)
            .header("idempotency-key", format!("summed {}", body.len()))
            .header("content-type", media_type)
            .body(Body::from(body.to_owned()));
        service.send(request.expect("a request")).await
    };
    let rows = ndjson(2500) + "nonsense\n\n\n";
    let csv = "longUrl,note\nhttps://example.com/a,b\nhttps://example.com/c,\"d\n";
    for (media_type, body, sums) in [
        (
            NDJSON,
            &*rows,
            json!({"rows": 2501, "created": 2500, "existing": 0, "refused": 1}),
        ),
        (
            "text/csv",
            csv,
            json!({"rows": 2, "created": 1, "existing": 0, "refused": 1}),
        ),
    ] {
        let mut sums = json!({ "summary": sums });
        sums["summary"]["bytes"] = json!(body.len());
        // A repetition without it is the same request.
        let plain = ask("", media_type, body).await;
        sums["summary"]["uploadId"] = json!(plain.header("upload-id"));
        let plain = lines(&plain);
        let mut summed = lines(&ask("summary=true", media_type, body).await);
        assert_eq!(summed.pop(), Some(sums), "{media_type}");
        assert_eq!(codes(&summed), codes(&plain));
        assert_eq!(summed.len(), plain.len());
        let without = lines(&ask("summary=false", media_type, body).await);
        assert_eq!(without.len(), plain.len());
    }
    let dedupe = "{\"longUrl\":\"https://example.com/once\",\"dedupe\":true}\n".repeat(3);
    let request = Request::builder()
        .method("POST")
        .uri("/v1/links/batch?summary=true")
        .header("x-api-key", &service.writer)
        .header("content-type", NDJSON)
        .body(Body::from(dedupe));
    let results = lines(&service.send(request.expect("a request")).await);
    assert_eq!(results[3]["summary"]["existing"], 2, "{results:?}");
    let array = ask("summary=true", "application/json", "[{}]").await;
    assert_eq!(array.status, 400);
}

#[tokio::test]
async fn a_batch_of_refused_rows_ends() {
    let service = Service::new().await;
    let rows = |count: usize| "x\n".repeat(count);
    let body = rows(9_000) + &ndjson(1) + &rows(60_000);
    let request = Request::builder()
        .method("POST")
        .uri("/v1/links/batch?summary=true")
        .header("x-api-key", &service.writer)
        .header("content-type", NDJSON)
        .body(Body::from(body));
    let results = lines(&service.send(request.expect("a request")).await);
    let [.., last, summary] = &results[..] else {
        panic!("{} lines", results.len());
    };
    assert_eq!(
        last["problem"]["type"], "urn:shortlink:problem:rows-refused",
        "{last}"
    );
    assert_eq!(last.get("index"), None);
    let summary = &summary["summary"];
    let read = summary["rows"].as_u64().expect("a number");
    // Rows in progress when the last allowed one was refused have results as well.
    assert!((19_001..40_000).contains(&read), "{read}");
    assert_eq!(summary["created"], 1);
    assert_eq!(results.len() as u64, read + 2);
    let detail = last["problem"]["detail"].to_string();
    assert!(
        detail.contains(&format!("from index {read} on")),
        "{detail}"
    );
}

#[tokio::test]
async fn a_quotation_mark_that_is_not_closed_takes_no_row_in_silence() {
    let service = Service::new().await;
    let rows: String = (0..40)
        .map(|it| format!("https://example.com/{it},x\n"))
        .collect();
    let open = format!("longUrl,note\nhttps://example.com/a,\"Bob\n{rows}");
    let closed = format!("{open}https://example.com/b,\"\nhttps://example.com/c,y\n");
    for (body, detail, made) in [
        (open, "not closed, and so all from line 2 to the end", 0),
        (closed, "spans 42 lines from line 2 on", 1),
    ] {
        let results = lines(&send(&service, "text/csv", None, Body::from(body)).await);
        assert_eq!(results.len(), 1 + made, "{results:?}");
        let told = &results[0]["problem"]["errors"][0]["detail"];
        assert!(
            told.as_str().is_some_and(|it| it.contains(detail)),
            "{told}"
        );
    }
}

#[tokio::test]
async fn bodies_in_other_encodings_are_decoded() {
    let service = Service::new().await;
    let text = "longUrl,note\nhttps://example.com/,短信\n";
    let json = "{\"longUrl\": \"https://example.com/\", \"note\": \"短信\"}";
    let utf_16 = |text: &str, bytes: fn(u16) -> [u8; 2]| -> Vec<u8> {
        text.encode_utf16().flat_map(bytes).collect()
    };
    let (little, big) = (u16::to_le_bytes, u16::to_be_bytes);
    let gbk = [
        b"longUrl,note\nhttps://example.com/,",
        &b"\xb6\xcc\xd0\xc5\n"[..],
    ]
    .concat();
    for (media_type, body) in [
        ("text/csv; charset=UTF-16", utf_16(text, little)),
        ("text/csv; charset=utf-16be", utf_16(text, big)),
        ("text/csv; charset=gbk", gbk.clone()),
        ("text/csv; charset=gb18030", gbk.clone()),
        ("text/csv", utf_16(&format!("\u{feff}{text}"), little)),
        ("text/csv", utf_16(&format!("\u{feff}{text}"), big)),
        (
            "application/json; charset=utf-16le",
            utf_16(&format!("[{json}]"), little),
        ),
        (
            "application/x-ndjson; charset=utf-16le",
            utf_16(json, little),
        ),
    ] {
        let answer = send(&service, media_type, None, Body::from(body)).await;
        let results: Value = match media_type.starts_with("application/json") {
            true => answer.json(),
            false => lines(&answer).into(),
        };
        assert_eq!(
            results[0]["link"]["note"], "短信",
            "{media_type}: {results}"
        );
        assert_eq!(results.as_array().map(Vec::len), Some(1), "{media_type}");
    }
    // A value that cannot be decoded affects its row only.
    let body = [b"\n{\"longUrl\": \"\xff\"}\n", json.as_bytes()].concat();
    let results = lines(&send(&service, NDJSON, None, Body::from(body)).await);
    let told = results[0]["problem"]["detail"].to_string();
    assert!(told.contains("cannot be decoded in line 2"), "{told}");
    assert_eq!(results[1]["status"], 201, "{results:?}");
    for media_type in ["text/csv", "text/csv; charset=gbk"] {
        let body = [b"longUrl,note\n\nhttps://example.com/,\xff\n", &gbk[13..]].concat();
        let results = lines(&send(&service, media_type, None, Body::from(body)).await);
        let error = &results[0]["problem"]["errors"][0];
        assert_eq!(error["pointer"], "/note", "{media_type}: {results:?}");
        assert!(
            error["detail"]
                .to_string()
                .contains("cannot be decoded in line 3"),
            "{error}"
        );
        let status = if media_type.contains("gbk") { 201 } else { 422 };
        assert_eq!(results[1]["status"], status, "{media_type}: {results:?}");
    }
}

#[tokio::test]
async fn a_byte_order_mark_belongs_to_no_row() {
    let service = Service::new().await;
    for (media_type, body) in [
        ("text/csv", "\u{feff}longUrl\nhttps://example.com/\n"),
        (NDJSON, "\u{feff}{\"longUrl\": \"https://example.com/\"}\n"),
    ] {
        let results = lines(&send(&service, media_type, None, Body::from(body)).await);
        assert_eq!(results[0]["status"], 201, "{media_type}: {results:?}");
    }
}

#[tokio::test]
async fn other_column_names_are_another_request() {
    let service = Service::new().await;
    for (name, status) in [("note", 201), ("note", 201), ("externalId", 422)] {
        let body = Body::from(format!("longUrl,{name}\nhttps://example.com/,a\n"));
        let results = lines(&send(&service, "text/csv", Some("names"), body).await);
        assert_eq!(results[0]["status"], status, "{name}: {results:?}");
    }
}

#[tokio::test]
async fn every_form_is_read_and_answered() {
    let service = Service::new().await;
    let csv = "longUrl,customSlug,redirectStatus\nhttps://example.com/a,one,301\n\
               https://example.com/b,,\nhttps://example.com/c,,x\n";
    let answer = send(&service, "text/csv; charset=utf-8", None, Body::from(csv)).await;
    let results = lines(&answer);
    let statuses: Vec<_> = results
        .iter()
        .map(|result| result["status"].clone())
        .collect();
    assert_eq!(statuses, [201, 201, 422]);
    assert_eq!(results[0]["link"]["redirectStatus"], 301);
    assert_eq!(
        results[2]["problem"]["errors"][0]["pointer"],
        "/redirectStatus"
    );

    let broken = send(
        &service,
        "application/json",
        None,
        Body::from("[{\"longUrl\":\"https://example.com/\"}, {"),
    )
    .await;
    let broken = broken.json();
    assert_eq!(
        (&broken[0]["status"], &broken[1]["status"]),
        (&json!(201), &json!(400))
    );
    let other = send(&service, "text/plain", None, Body::from("x")).await;
    assert_eq!(other.status, 415);
    let too_long = "k".repeat(256);
    let refused = send(&service, NDJSON, Some(&too_long), Body::empty()).await;
    assert_eq!(refused.status, 400);
}

#[tokio::test]
async fn many_rows_are_answered_in_their_order() {
    let service = Service::new().await;
    let count = 3 * MAX_TOGETHER + 17;
    let answer = send(&service, NDJSON, None, Body::from(ndjson(count))).await;
    let results = lines(&answer);
    assert_eq!(results.len(), count);
    for (index, result) in results.iter().enumerate() {
        assert_eq!(result["index"], index);
        assert_eq!(
            result["link"]["longUrl"],
            format!("https://example.com/{index}")
        );
    }
    let distinct: HashSet<String> = codes(&results).into_iter().collect();
    assert_eq!(distinct.len(), count);
}

#[tokio::test]
async fn what_has_arrived_is_answered_while_the_rest_is_awaited() {
    let service = Service::new().await;
    let (sender, receiver) = tokio::sync::mpsc::channel::<Bytes>(4);
    let body = stream::unfold(receiver, |mut receiver| async {
        let part = receiver.recv().await?;
        Some((Ok::<_, std::io::Error>(part), receiver))
    });
    let request = Request::builder()
        .method("POST")
        .uri("/v1/links/batch")
        .header("x-api-key", &service.writer)
        .header("content-type", NDJSON)
        .body(Body::from_stream(body))
        .expect("a request");
    let response = tower::ServiceExt::oneshot(service.router.clone(), request).await;
    let mut answer = response.expect("an answer").into_body().into_data_stream();
    for number in 0..3 {
        let row = format!("{{\"longUrl\":\"https://example.com/{number}\"}}\n");
        sender.send(row.into()).await.expect("a reader");
        let part = futures_util::StreamExt::next(&mut answer).await;
        let part = part.expect("a result").expect("no error");
        let result: Value = serde_json::from_slice(&part).expect("JSON");
        assert_eq!(result["index"], number);
    }
}

#[tokio::test]
async fn a_request_that_is_sent_again_has_no_other_effect() {
    let service = Service::new().await;
    let count = 2 * MAX_TOGETHER + 5;
    let mut body = ndjson(count);
    body.push_str("{\"longUrl\":\"https://example.com/s\",\"customSlug\":\"mine\"}\nnonsense\n");
    let first = lines(&send(&service, NDJSON, Some("k"), Body::from(body.clone())).await);
    assert_eq!(codes(&first).len(), count + 1);
    // The answer was lost, and Redis with it.
    service.redis.restart();
    let again = lines(&send(&service, NDJSON, Some("k"), Body::from(body.clone())).await);
    assert_eq!(again, first);
    assert!(service.redis.record("mine").is_some());

    // Another key creates other links, and its custom code is taken now.
    let other = lines(&send(&service, NDJSON, Some("other"), Body::from(body.clone())).await);
    let distinct: HashSet<String> = codes(&first).into_iter().chain(codes(&other)).collect();
    assert_eq!(distinct.len(), 2 * count + 1);
    assert_eq!(other[count]["status"], 409);
    // A problem is replayed too, even if its cause no longer exists.
    let again = lines(&send(&service, NDJSON, Some("other"), Body::from(body.clone())).await);
    assert_eq!(again, other);

    // The key belongs to that request.
    let changed = body.replace("/7\"", "/seven\"");
    let refused = lines(&send(&service, NDJSON, Some("k"), Body::from(changed)).await);
    let problem = &refused[0]["problem"]["type"];
    assert_eq!(problem, "urn:shortlink:problem:idempotency-key-reused");
    assert_eq!(refused[MAX_TOGETHER]["status"], 201);
}

/// Simulates a client that times out and retries at once.
#[tokio::test]
async fn the_same_request_at_the_same_time_makes_its_links_once() {
    let service = Service::new().await;
    let body = ndjson(300);
    let (one, other) = tokio::join!(
        send(&service, NDJSON, Some("k"), Body::from(body.clone())),
        send(&service, NDJSON, Some("k"), Body::from(body.clone())),
    );
    assert_eq!(codes(&lines(&one)), codes(&lines(&other)));
    let listed = service.get("/v1/links?limit=1000").await.json();
    assert_eq!(listed["links"].as_array().map(Vec::len), Some(300));
}

#[tokio::test]
async fn the_links_of_a_batch_are_found_by_its_upload() {
    let service = Service::new().await;
    let list = async |id: &str| {
        let answer = service.get(&format!("/v1/links?uploadId={id}")).await;
        assert_eq!(answer.status, 200, "{}", answer.json());
        let links = answer.json()["links"].as_array().cloned().expect("links");
        let codes = links.iter().map(|link| {
            assert_eq!(link["uploadId"], id);
            link["shortCode"].as_str().expect("a code").to_owned()
        });
        codes.collect::<HashSet<String>>()
    };
    // With a key, a repetition belongs to the same upload.
    let first = send(&service, NDJSON, Some("spring"), Body::from(ndjson(5))).await;
    let upload = first.header("upload-id").expect("an id").to_owned();
    let again = send(&service, NDJSON, Some("spring"), Body::from(ndjson(5))).await;
    assert_eq!(again.header("upload-id"), Some(&*upload));
    let mut expected: HashSet<String> = codes(&lines(&first)).into_iter().collect();
    assert_eq!(list(&upload).await, expected);
    // Without one, each batch has its own.
    let plain = send(&service, NDJSON, None, Body::from(ndjson(2))).await;
    let other = plain.header("upload-id").expect("an id").to_owned();
    assert_ne!(other, upload);
    assert_eq!(list(&other).await.len(), 2);
    // Another part of the file, with a link of a campaign's settings and one that exists.
    let dedupe = json!({"longUrl": "https://example.com/old", "dedupe": true});
    let old = service.create(dedupe.clone()).await.json();
    assert!(old.get("uploadId").is_none(), "{old}");
    let body = format!(
        "{{\"longUrl\":\"https://example.com/new\",\"note\":\"full\",\"maxVisits\":3}}\n{dedupe}\n"
    );
    let request = Request::builder()
        .method("POST")
        .uri(format!("/v1/links/batch?summary=true&uploadId={upload}"))
        .header("x-api-key", &service.writer)
        .header("content-type", NDJSON)
        .body(Body::from(body));
    let part = lines(&service.send(request.expect("a request")).await);
    assert_eq!(part[0]["link"]["uploadId"], *upload);
    assert_eq!(part[1]["status"], 200);
    assert!(part[1]["link"].get("uploadId").is_none(), "{part:?}");
    assert_eq!(part[2]["summary"]["uploadId"], *upload);
    expected.extend(codes(&part[..1]));
    assert_eq!(list(&upload).await, expected);
    // A change keeps it, as the history does.
    let code = codes(&part[..1]).remove(0);
    let path = format!("/v1/links/{code}");
    let changed = service
        .call(&service.writer, "PATCH", &path, Some(json!({"note": null})))
        .await;
    assert_eq!(changed.json()["uploadId"], *upload);
    for id in ["", "1", "8000000000000000", "3F0C9D24A6B1E857"] {
        let answer = service.get(&format!("/v1/links?uploadId={id}")).await;
        assert_eq!(answer.status, 400, "{id}");
    }
}
