//! `GET /v1/search`: links and campaigns by any text.

use serde_json::{Value, json};
use shortlink_core::api_key::Scope;
use shortlink_store::testing::TemporaryStore;

use super::{Answer, Service, new_key};

/// The contents of an answer: members with codes, and names of campaigns.
fn found(answer: &Answer) -> (Vec<String>, Vec<String>) {
    assert_eq!(answer.status, 200);
    let body = answer.json();
    let text = |value: &Value| value.as_str().expect("text").to_owned();
    let links = body["links"].as_array().expect("links").iter();
    let links = links.map(|it| {
        format!(
            "{} {}",
            text(&it["foundBy"]),
            text(&it["link"]["shortCode"])
        )
    });
    let campaigns = body["campaigns"].as_array().expect("campaigns").iter();
    (
        links.collect(),
        campaigns.map(|it| text(&it["name"])).collect(),
    )
}

#[tokio::test]
async fn one_question_finds_links_and_campaigns() {
    let service = Service::on(TemporaryStore::finding_targets().await, |_app| {}).await;
    let (_, key) = service.key(1, new_key(&[Scope::Admin])).await;
    for body in [
        json!({"customSlug": "one", "longUrl": "https://acme.example/spring/sale?id=1"}),
        json!({"customSlug": "two", "longUrl": "https://example.com/", "tags": ["spring"], "note": "fair"}),
    ] {
        assert_eq!(service.create(body).await.status, 201);
    }
    let body = json!({"name": "Spring 2030", "longUrl": "https://example.com/{member}"});
    let campaign = service
        .call(&key, "POST", "/v1/campaigns", Some(body))
        .await;
    assert_eq!(campaign.status, 201);
    let texts = |texts: &[&str]| texts.iter().map(|it| (*it).to_owned()).collect::<Vec<_>>();
    for (text, links, campaigns) in [
        (
            "spring",
            &["tag two", "longUrl one"][..],
            &["Spring 2030"][..],
        ),
        ("acme.example%2Fsal", &["longUrl one"], &[]),
        (
            "https%3A%2F%2Facme.example%2Fspring%2Fsale%3Fid%3D1",
            &["longUrl one"],
            &[],
        ),
        ("fai", &["note two"], &[]),
        ("https%3A%2F%2Fsms.example%2Ftwo", &["shortCode two"], &[]),
        ("spring+2030", &[], &["Spring 2030"]),
        ("nothing", &[], &[]),
    ] {
        let answer = service
            .call(&key, "GET", &format!("/v1/search?q={text}"), None)
            .await;
        assert_eq!(found(&answer), (texts(links), texts(campaigns)), "{text}");
    }
    // A key without the scope for campaigns finds links.
    let answer = service.get("/v1/search?q=spring").await;
    assert_eq!(
        found(&answer),
        (texts(&["tag two", "longUrl one"]), texts(&[]))
    );
    let link = &answer.json()["links"][0]["link"];
    assert_eq!(link["note"], "fair");
    assert_eq!(link["visits"]["total"], 0);
}

#[tokio::test]
async fn a_text_that_cannot_be_searched_is_refused_with_what_can() {
    let service = Service::new().await;
    let long = "a".repeat(2049);
    for query in [
        "",
        "?q=",
        "?q=a",
        "?q=%20a%20",
        "?q=.%2F%3F",
        &format!("?q={long}"),
    ] {
        let answer = service.get(&format!("/v1/search{query}")).await;
        assert_eq!(answer.status, 400, "{query}");
        let problem = answer.json();
        assert_eq!(problem["type"], "urn:shortlink:problem:query");
        assert_eq!(
            problem["detail"],
            "q must be a text of 2 to 2048 characters with a letter or digit."
        );
    }
    let other = service.get("/v1/search?query=spring").await;
    assert_eq!(other.json()["detail"], "The only allowed parameter is q.");
}
