//! `GET /v1/links?longUrl=`: links by their target.

use jiff::SignedDuration;
use serde_json::json;
use shortlink_store::testing::TemporaryStore;

use super::{Answer, Service};

/// The custom codes of a page.
fn slugs(answer: &Answer) -> Vec<String> {
    assert_eq!(answer.status, 200);
    let page = answer.json();
    let links = page["links"].as_array().expect("links").iter();
    let slugs = links.map(|link| link["shortCode"].as_str().expect("a code").to_owned());
    slugs.collect()
}

#[tokio::test]
async fn links_are_found_by_their_target_in_any_spelling() {
    let service = Service::on(TemporaryStore::finding_targets().await, |_app| {}).await;
    for (slug, url) in [
        ("one", "https://example.com/ü"),
        ("two", "HTTPS://EXAMPLE.com:443/%C3%BC"),
        ("three", "https://example.com/u"),
        ("four", "https://example.com/ü"),
    ] {
        let body = json!({"customSlug": slug, "longUrl": url, "tags": [slug]});
        assert_eq!(service.create(body).await.status, 201);
        service.clock.advance(SignedDuration::from_millis(1));
    }
    let asked = |rest: &str| format!("/v1/links?longUrl=https%3A%2F%2Fexample.com%2F{rest}");
    for (rest, expected) in [
        ("%C3%BC", &["four", "two", "one"][..]),
        ("%25C3%25BC", &["four", "two", "one"]),
        ("u", &["three"]),
        ("U", &[]),
        ("%C3%BC&tag=two", &["two"]),
        ("%C3%BC&state=revoked", &[]),
        ("%C3%BC&createdBy=nobody", &[]),
    ] {
        assert_eq!(slugs(&service.get(&asked(rest)).await), expected, "{rest}");
    }
    // Pages go on where the last one has ended.
    let first = service.get(&asked("%C3%BC&limit=2")).await;
    assert_eq!(slugs(&first), ["four", "two"]);
    let cursor = first.json()["nextCursor"]
        .as_str()
        .expect("a cursor")
        .to_owned();
    let second = service
        .get(&asked(&format!("%C3%BC&limit=2&cursor={cursor}")))
        .await;
    assert_eq!(
        (slugs(&second), &second.json()["nextCursor"]),
        (vec!["one".to_owned()], &json!(null))
    );
    // A change moves the link to its new target.
    service
        .patch("/v1/links/two", json!({"longUrl": "https://example.com/u"}))
        .await;
    assert_eq!(slugs(&service.get(&asked("%C3%BC")).await), ["four", "one"]);
    assert_eq!(slugs(&service.get(&asked("u")).await), ["three", "two"]);
    for wrong in ["example.com", "ftp://example.com/", "https://"] {
        let answer = service.get(&format!("/v1/links?longUrl={wrong}")).await;
        assert_eq!(answer.status, 400, "{wrong}");
        let detail = answer.json()["detail"].as_str().expect("text").to_owned();
        assert!(detail.starts_with("longUrl must be a URL"), "{detail}");
    }
}

#[tokio::test]
async fn an_index_that_is_off_or_has_gaps_is_told() {
    let service = Service::new().await;
    let asked = "/v1/links?longUrl=https://example.com/";
    let off = service.get(asked).await;
    assert_eq!(off.status, 409);
    let problem = off.json();
    assert_eq!(problem["type"], "urn:shortlink:problem:find-by-target-off");
    assert!(
        problem["detail"]
            .as_str()
            .expect("text")
            .contains("links.find_by_target")
    );

    let temporary = TemporaryStore::finding_targets().await;
    // Another process does not prepare its links.
    let other = shortlink_store::sqlite::SqliteStore::open(&temporary.url, 1).await;
    let other = other.expect("a good database");
    let created = other
        .create_links(vec![shortlink_core::testing::link("other")])
        .await;
    assert_eq!(created.expect("a store").taken, [0; 0]);
    let service = Service::on(temporary, |_app| {}).await;
    let filling = service.get(asked).await;
    assert_eq!(
        (filling.status, filling.header("retry-after")),
        (503, Some("2"))
    );
    while service.kept.store.fill_targets(10).await.expect("a store") {}
    let asked = "/v1/links?longUrl=https://example.com/a";
    assert_eq!(slugs(&service.get(asked).await), ["other"]);
}

#[tokio::test]
async fn a_link_says_how_its_code_was_chosen() {
    let service = Service::new().await;
    for strategy in ["permuted", "pool", "sequence", "hash"] {
        let body = json!({"longUrl": "https://example.com/a", "strategy": strategy});
        let link = service.create(body).await.json();
        assert_eq!(link["strategy"], strategy);
        let path = format!("/v1/links/{}", link["shortCode"].as_str().expect("a code"));
        assert_eq!(service.get(&path).await.json()["strategy"], strategy);
    }
    let body = json!({"longUrl": "https://example.com/a", "customSlug": "mine"});
    assert_eq!(service.create(body).await.json()["strategy"], "custom");
    let imported = service
        .kept
        .store
        .import_links(vec![shortlink_core::testing::link("old")])
        .await;
    assert_eq!(imported.expect("a store").taken, [0; 0]);
    let page = service.get("/v1/links").await.json();
    let links = page["links"].as_array().expect("links");
    let of = |code: &str| {
        links
            .iter()
            .find(|link| link["shortCode"] == code)
            .expect("a link")
    };
    assert_eq!(of("mine")["strategy"], "custom");
    assert_eq!(of("old")["strategy"], json!(null));
}
