//! `/v1/links/batch`: bodies in all formats and encodings.

use axum::body::Body;
use axum::http::Request;
use serde_json::{Value, json};

use super::Service;
use super::batch::{NDJSON, lines, send};

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
        // Two separators are as frequent.
        ("longUrl;note\ttags\na;b\tc\n", "delimiter=semicolon"),
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
async fn a_quotation_mark_that_is_not_closed_takes_no_row_in_silence() {
    let service = Service::new().await;
    let rows: String = (0..40)
        .map(|it| format!("https://example.com/{it},x\n"))
        .collect();
    let open = format!("longUrl,note\nhttps://example.com/a,\"Bob\n{rows}");
    let closed = format!("{open}https://example.com/b,\"\nhttps://example.com/c,y\n");
    // The mark of the third row closes that of the first one.
    let soon = "longUrl,note\nhttps://example.com/a,\"Bob\nhttps://example.com/b,x\n\
                https://example.com/c,\"Al\nhttps://example.com/d,y\n";
    let within = "longUrl,note\nhttps://example.com/a,\"5\" tall\nhttps://example.com/b,y\n";
    let (soon, within) = (soon.to_owned(), within.to_owned());
    for (body, detail, made) in [
        (open, "not closed, and so all from line 2 to the end", 0),
        (closed, "spans 42 lines from line 2 on", 1),
        (soon, "closing quotation mark (lines from 2 on: 3)", 1),
        (within, "closing quotation mark (lines from 2 on: 1)", 1),
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
