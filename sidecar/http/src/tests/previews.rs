//! Previews of links and campaigns.

use axum::body::Body;
use axum::http::Request;
use serde_json::{Value, json};

use super::campaign_links::patch;
use super::{Answer, Service};

const WHATSAPP: &str = "WhatsApp/2.24.13.77 A";

fn preview() -> Value {
    json!({
        "title": "Summer \"sale\"", "description": "Up to <50%> off",
        "image": "https://e.example/a.png?b=1&c=2",
    })
}

async fn follow(service: &Service, method: &str, code: &str, agent: &str) -> Answer {
    let request = Request::builder()
        .method(method)
        .uri(format!("/resolve/{code}"))
        .header("User-Agent", agent)
        .header("X-Shortlink-Url", format!("https://s.example.com/{code}"))
        .header("X-Shortlink-Query", "src=ad")
        .body(Body::empty());
    service.send(request.expect("a good request")).await
}

fn text(answer: &Answer) -> String {
    String::from_utf8(answer.body.clone()).expect("UTF-8")
}

#[tokio::test]
async fn preview_agents_get_the_page_and_others_the_redirect() {
    let service = Service::new().await;
    let body = json!({
        "longUrl": "https://example.com/a?b=c", "customSlug": "abc", "preview": preview(),
        "forwardQuery": true,
    });
    let created = service.create(body).await;
    assert_eq!(created.status, 201, "{:?}", created.json());
    assert_eq!(created.json()["preview"], preview());
    let page = follow(&service, "GET", "abc", WHATSAPP).await;
    assert_eq!(page.status, 200);
    for (name, value) in [
        ("content-type", Some("text/html; charset=utf-8")),
        ("cache-control", Some("no-store")),
        ("x-shortlink-preview", Some("1")),
        ("location", None),
    ] {
        assert_eq!(page.header(name), value, "{name}");
    }
    for part in [
        "og:title\" content=\"Summer &quot;sale&quot;\"",
        "og:description\" content=\"Up to &lt;50%&gt; off\"",
        "og:image\" content=\"https://e.example/a.png?b=1&amp;c=2\"",
        "og:url\" content=\"https://s.example.com/abc\"",
        "content=\"0; url=https://example.com/a?b=c&amp;src=ad\"",
    ] {
        assert!(text(&page).contains(part), "{part}: {}", text(&page));
    }
    let head = follow(&service, "HEAD", "abc", WHATSAPP).await;
    assert_eq!((head.status, text(&head).len()), (200, 0));
    let answer = follow(&service, "GET", "abc", "Mozilla/5.0 (Windows NT 10.0)").await;
    assert_eq!(answer.status, 302);
    let target = "https://example.com/a?b=c&src=ad";
    assert_eq!(answer.header("location"), Some(target));
    assert_eq!(answer.header("x-shortlink-preview"), None);
    let path = "/v1/links/abc/explain?userAgent=";
    let explained = service.get(&format!("{path}WhatsApp/2")).await.json();
    let answer = &explained["answer"];
    assert_eq!(
        (&answer["status"], &answer["preview"]),
        (&json!(200), &json!(true))
    );
    assert_eq!(answer["location"], "https://example.com/a?b=c");
    let explained = service.get(&format!("{path}curl/8")).await.json();
    let answer = &explained["answer"];
    assert_eq!(
        (&answer["status"], &answer["preview"]),
        (&json!(302), &json!(false))
    );

    let changed = patch(
        &service,
        "/v1/links/abc",
        json!({"preview": {"title": "New"}}),
    )
    .await;
    assert_eq!(changed.json()["preview"], json!({"title": "New"}));
    let history = service.get("/v1/links/abc/history").await.json();
    assert_eq!(history["history"][0]["before"]["preview"], preview());
    let changed = patch(&service, "/v1/links/abc", json!({"preview": null})).await;
    assert_eq!(changed.json()["preview"], Value::Null);
    assert_eq!(follow(&service, "GET", "abc", WHATSAPP).await.status, 302);
}

#[tokio::test]
async fn a_campaign_has_the_preview_of_its_links() {
    let service = Service::new().await;
    let campaign = json!({
        "name": "Spring", "longUrl": "https://shop.example.com/{member}", "clickId": "sl",
        "preview": {"title": "Spring"},
    });
    let path = "/v1/campaigns";
    let created = service
        .call(&service.campaigner, "POST", path, Some(campaign))
        .await;
    assert_eq!(created.status, 201, "{:?}", created.json());
    assert_eq!(created.json()["preview"], json!({"title": "Spring"}));
    let link = json!({"campaignId": "1", "parameters": {"member": "a"}, "customSlug": "abc"});
    assert_eq!(service.create(link.clone()).await.status, 201);
    let page = follow(&service, "GET", "abc", WHATSAPP).await;
    assert_eq!(page.status, 200);
    let id = page.header("x-shortlink-click").expect("a click id");
    let target = format!("url=https://shop.example.com/a?sl={id}\"");
    assert!(text(&page).contains(&target), "{}", text(&page));
    assert!(text(&page).contains("<title>Spring</title>"));
    let mut own = link;
    own["preview"] = json!({"title": "Own"});
    let answer = service.create(own).await;
    assert_eq!(answer.json()["errors"][0]["pointer"], "/preview");
    let answer = patch(
        &service,
        "/v1/links/abc",
        json!({"preview": {"title": "Own"}}),
    )
    .await;
    assert_eq!(answer.json()["errors"][0]["pointer"], "/preview");
}

#[tokio::test]
async fn faults_of_previews_are_reported_at_their_place() {
    let service = Service::with(|app| app.body_limit_bytes = 1 << 16).await;
    let with = |name: &str, value: Value| {
        let mut preview = preview();
        preview[name] = value;
        preview
    };
    let image = |length: usize| format!("https://e.example/{}", "a".repeat(length - 18));
    for (preview, pointer) in [
        (json!("title"), "/preview"),
        (json!({}), "/preview/title"),
        (with("title", json!("")), "/preview/title"),
        (with("title", json!("  ")), "/preview/title"),
        (with("title", json!("a\nb")), "/preview/title"),
        (with("title", json!("\u{85}")), "/preview/title"),
        (with("title", json!("ä".repeat(201))), "/preview/title"),
        (
            with("description", json!("a".repeat(501))),
            "/preview/description",
        ),
        (with("description", json!(1)), "/preview/description"),
        (
            with("image", json!("http://e.example/a.png")),
            "/preview/image",
        ),
        (with("image", json!(image(2049))), "/preview/image"),
        (
            with("image", json!("https://localhost/a.png")),
            "/preview/image",
        ),
        (
            with("image", json!("https://denied.example/a.png")),
            "/preview/image",
        ),
        (
            with("image", json!("https://s.example.com/a.png")),
            "/preview/image",
        ),
        (
            with("video", json!("https://e.example/a")),
            "/preview/video",
        ),
    ] {
        let body = json!({"longUrl": "https://example.com/", "preview": preview});
        let answer = service.create(body).await;
        assert_eq!(answer.status, 422, "{preview}: {:?}", answer.json());
        let errors = answer.json()["errors"].clone();
        assert_eq!(errors[0]["pointer"], pointer, "{errors}");
        assert_eq!(errors.as_array().map(Vec::len), Some(1), "{errors}");
    }
    let most = json!({
        "title": "ä".repeat(200), "description": "😀".repeat(500), "image": image(2048),
    });
    let body = json!({"longUrl": "https://example.com/", "preview": most});
    let created = service.create(body).await;
    assert_eq!(created.status, 201, "{:?}", created.json());
    assert_eq!(created.json()["preview"], most);
}
