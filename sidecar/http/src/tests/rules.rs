//! Rules of links and campaigns, and targets instead of answers.

use axum::body::Body;
use axum::http::Request;
use serde_json::{Value, json};

use super::campaign_links::{patch, post, spring};
use super::{Answer, Service};

const IPHONE: (&str, &str) = ("User-Agent", "Mozilla/5.0 (iPhone; CPU iPhone OS 26_0)");

/// All members of a link's plan.
fn plan() -> Value {
    json!({
        "rules": [
            {
                "device": ["ios"], "language": ["de", "pt-BR"], "country": ["DE", "US-CA"],
                "validSince": "2026-01-01T00:00:00Z", "validUntil": "2027-01-01T00:00:00Z",
                "query": {"name": "src", "value": "ad two"}, "variant": "all",
                "longUrl": "https://e.example/all",
            },
            {"device": ["ios"], "longUrl": "https://e.example/ios"},
            {"query": {"name": "src"}, "longUrl": "https://e.example/src"},
            {"percent": 99.99, "variant": "a", "longUrl": "https://e.example/a"},
        ],
        "expiredTarget": "https://e.example/expired",
        "pausedTarget": "https://e.example/paused",
        "notYetTarget": "https://e.example/early",
    })
}

async fn follow(service: &Service, code: &str, headers: &[(&str, &str)]) -> Answer {
    let request = Request::builder().uri(format!("/resolve/{code}"));
    let request = headers.iter().fold(request, |request, (name, value)| {
        request.header(*name, *value)
    });
    let request = request.body(Body::empty()).expect("a good request");
    service.send(request).await
}

#[tokio::test]
async fn a_visitor_follows_the_first_rule_that_is_met() {
    let service = Service::with(|app| app.body_limit_bytes = 1 << 16).await;
    let mut body = plan();
    body["longUrl"] = json!("https://example.com/a");
    body["customSlug"] = json!("planned");
    let created = service.create(body).await;
    assert_eq!(created.status, 201, "{:?}", created.json());
    let found = service.get("/v1/links/planned").await.json();
    let given = plan();
    for (name, value) in given.as_object().expect("an object") {
        assert_eq!(&found[name], value);
    }
    let german = ("Accept-Language", "de-AT,en;q=0.5");
    let query = ("X-Shortlink-Query", "a=b&src=ad+two");
    for (headers, target, variant) in [
        (
            vec![IPHONE, german, query, ("X-Shortlink-Place", "US-CA")],
            "https://e.example/all",
            Some("all"),
        ),
        (
            vec![IPHONE, german, query, ("X-Shortlink-Place", "US-NY")],
            "https://e.example/ios",
            None,
        ),
        (vec![query], "https://e.example/src", None),
        (
            vec![("X-Shortlink-Address", "192.0.2.1")],
            "https://e.example/a",
            Some("a"),
        ),
    ] {
        let answer = follow(&service, "planned", &headers).await;
        assert_eq!(answer.status, 302, "{headers:?}");
        assert_eq!(answer.header("location"), Some(target), "{headers:?}");
        assert_eq!(answer.header("x-shortlink-variant"), variant, "{headers:?}");
    }
    let change = json!({"rules": null, "notYetTarget": null});
    let changed = patch(&service, "/v1/links/planned", change).await.json();
    assert_eq!(changed["rules"], Value::Null);
    assert_eq!(changed["expiredTarget"], "https://e.example/expired");
    let answer = follow(&service, "planned", &[IPHONE]).await;
    assert_eq!(answer.header("location"), Some("https://example.com/a"));
    let paused = service.call(&service.writer, "POST", "/v1/links/planned/pause", None);
    assert_eq!(paused.await.status, 200);
    let answer = follow(&service, "planned", &[]).await;
    assert_eq!(answer.header("location"), Some("https://e.example/paused"));
    let history = service.get("/v1/links/planned/history").await.json();
    let rules = &history["history"][1]["before"]["rules"];
    assert_eq!(rules, &given["rules"]);
}

#[tokio::test]
async fn faults_of_rules_are_reported_at_their_place() {
    let service = Service::with(|app| app.body_limit_bytes = 1 << 16).await;
    let ios = json!({"device": ["ios"], "longUrl": "https://e.example/"});
    for (rules, pointer) in [
        (json!({}), "/rules"),
        (json!([1]), "/rules/0"),
        (json!(vec![&ios; 21]), "/rules"),
        (json!([ios, ios]), "/rules/1"),
        (json!([{"longUrl": "https://e.example/"}]), "/rules/0"),
        (
            json!([{"variant": "a", "longUrl": "https://e.example/"}]),
            "/rules/0",
        ),
        (json!([{"device": ["ios"]}]), "/rules/0/longUrl"),
        (
            json!([{"device": ["ios"], "longUrl": "https://localhost/"}]),
            "/rules/0/longUrl",
        ),
        (
            json!([ios, {"country": ["DE"], "longUrl": "https://denied.example/"}]),
            "/rules/1/longUrl",
        ),
    ] {
        refused(&service, &json!({ "rules": rules }), pointer).await;
    }
    for (condition, pointer) in [
        (json!({"device": ["ios", "tv"]}), "/device/1"),
        (json!({"device": []}), "/device"),
        (json!({"language": ["de_AT"]}), "/language/0"),
        (json!({"country": ["DE", "de"]}), "/country/1"),
        (json!({"country": ["DE,FR"]}), "/country/0"),
        (json!({"percent": 0}), "/percent"),
        (json!({"percent": 0.001}), "/percent"),
        (json!({"percent": 100.01}), "/percent"),
        (json!({"query": {"value": "a"}}), "/query/name"),
        (json!({"query": {"name": "a", "is": 1}}), "/query/is"),
        (json!({"query": {"name": ".."}}), "/query/name"),
        (
            json!({"query": {"name": "a", "value": "b\n"}}),
            "/query/value",
        ),
        (json!({"device": ["ios"], "variant": "a b"}), "/variant"),
        (json!({"device": ["android"], "os": "ios"}), "/os"),
        (
            json!({"validSince": "2026-02-01T00:00:00Z", "validUntil": "2026-02-01T00:00:00Z"}),
            "/validUntil",
        ),
    ] {
        let mut rule = condition;
        rule["longUrl"] = json!("https://e.example/");
        let body = json!({ "rules": [ios, rule] });
        refused(&service, &body, &format!("/rules/1{pointer}")).await;
    }
    // Rules whose visitors follow earlier ones, or that are over. A change may repeat those.
    let over = json!({"validUntil": "2026-01-01T00:00:00Z", "longUrl": "https://e.example/"});
    let iphones = json!({"device": ["ios"], "country": ["DE"], "longUrl": "https://e.example/"});
    refused(&service, &json!({"rules": [ios, iphones]}), "/rules/1").await;
    let rules = json!({"rules": [ios, over]});
    refused(&service, &rules, "/rules/1/validUntil").await;
    let created = service.create(json!({"longUrl": "https://example.com/", "customSlug": "over"}));
    assert_eq!(created.await.status, 201);
    assert_eq!(patch(&service, "/v1/links/over", rules).await.status, 200);
    let shares = [60, 30, 11].map(|it| json!({"percent": it, "longUrl": "https://e.example/"}));
    refused(&service, &json!({ "rules": shares }), "/rules/2/percent").await;
    let own = json!({"pausedTarget": "https://s.example.com/a"});
    refused(&service, &own, "/pausedTarget").await;
    let long = format!("https://e.example/{}", "a".repeat(8170));
    let both = json!({"expiredTarget": long, "notYetTarget": long});
    refused(&service, &both, "/rules").await;
    let created = service.create(json!({"longUrl": "https://example.com/", "customSlug": "a"}));
    assert_eq!(created.await.status, 201);
    let answer = patch(&service, "/v1/links/a", both).await;
    assert_eq!(answer.json()["errors"][0]["pointer"], "/rules");
}

#[tokio::test]
async fn rules_outside_the_validity_of_their_link_or_campaign_are_refused() {
    let service = Service::new().await;
    let year = |year: u32| format!("{year}-01-01T00:00:00Z");
    let rule = |member: &str, at: &str| json!({member: at, "longUrl": "https://e.example/"});
    let early = rule("validUntil", &year(2027));
    let late = rule("validSince", &year(2028));
    let within = json!({"validSince": year(2026), "validUntil": year(2028), "longUrl": "https://e.example/"});
    let new = |rules: &[&Value]| {
        json!({
            "name": "Spring", "longUrl": "https://example.com/{code}", "rules": rules,
            "validSince": year(2027), "validUntil": year(2028),
        })
    };
    let pointers = |answer: Answer| -> Vec<String> {
        let errors = answer.json()["errors"]
            .as_array()
            .cloned()
            .unwrap_or_default();
        let pointers = errors
            .iter()
            .map(|it| it["pointer"].as_str().expect("text").to_owned());
        pointers.collect()
    };
    for (key, all, path) in [
        (&service.writer, "/v1/links", "/v1/links/a"),
        (&service.campaigner, "/v1/campaigns", "/v1/campaigns/1"),
    ] {
        let call = async |method: &str, path: &str, mut body: Value| {
            if all == "/v1/links" && method == "POST" {
                body["longUrl"] = json!("https://example.com/");
                body["customSlug"] = json!("a");
                body.as_object_mut().expect("an object").remove("name");
            }
            service.call(key, method, path, Some(body)).await
        };
        let answer = call("POST", all, new(&[&within, &early, &late])).await;
        assert_eq!(answer.status, 422);
        let expected = ["/rules/1/validUntil", "/rules/2/validSince"];
        assert_eq!(pointers(answer), expected);
        assert_eq!(call("POST", all, new(&[&within])).await.status, 201);

        // A change compares with the validity after it, and lets rules stay.
        let change = async |body: Value| call("PATCH", path, body).await;
        assert_eq!(
            pointers(change(json!({"rules": [late]})).await),
            ["/rules/0/validSince"]
        );
        assert_eq!(
            pointers(change(json!({"rules": [early]})).await),
            ["/rules/0/validUntil"]
        );
        let longer = json!({"rules": [within, late], "validUntil": null});
        assert_eq!(change(longer).await.status, 200);
        assert_eq!(change(json!({"validUntil": year(2028)})).await.status, 200);
        let kept = json!({"rules": [late, {"device": ["ios"], "longUrl": "https://e.example/"}]});
        assert_eq!(change(kept).await.status, 200);
        assert_eq!(change(json!({"rules": null})).await.status, 200);
        assert_eq!(change(json!({"rules": [late]})).await.status, 422);
    }
}

#[tokio::test]
async fn variants_divide_visitors_by_weight_until_one_wins() {
    let service = Service::new().await;
    let variant = |name: &str, weight: f64, target: &str| json!({"name": name, "weight": weight, "longUrl": target});
    let variants = |target: &str| {
        json!([
            variant("a", 2.0, &format!("https://a.example/{target}")),
            variant("b", 1.0, &format!("https://b.example/{target}")),
        ])
    };
    let shares = |target: &str, percents: [f64; 2]| {
        json!([
            {"percent": percents[0], "variant": "a", "longUrl": format!("https://a.example/{target}")},
            {"percent": percents[1], "variant": "b", "longUrl": format!("https://b.example/{target}")},
        ])
    };
    let campaign = json!({"name": "Spring", "longUrl": "https://example.com/{code}"});
    let path = "/v1/campaigns";
    let created = service.call(&service.campaigner, "POST", path, Some(campaign));
    assert_eq!(created.await.status, 201);
    let link = json!({"longUrl": "https://example.com/", "customSlug": "a"});
    assert_eq!(service.create(link).await.status, 201);
    for (key, path, place) in [
        (&service.writer, "/v1/links/a", ""),
        (&service.campaigner, "/v1/campaigns/1", "{code}"),
    ] {
        let call = async |method: &str, path: &str, body: Value| {
            service.call(key, method, path, Some(body)).await
        };
        let change = async |body: Value| {
            let changed = call("PATCH", path, body).await;
            assert_eq!(changed.status, 200, "{:?}", changed.json());
            changed.json()
        };
        let phones = json!({"device": ["ios"], "longUrl": "https://apps.example.com/"});
        let both = json!({"rules": [phones], "variants": variants(place)});
        let expected = |shares: Value| {
            let mut rules = vec![phones.clone()];
            rules.extend(shares.as_array().expect("rules").iter().cloned());
            Value::from(rules)
        };
        let rules = change(both).await["rules"].clone();
        assert_eq!(rules, expected(shares(place, [66.67, 33.33])));
        let mut even = variants(place);
        even[0]["weight"] = json!(1);
        let rules = change(json!({"variants": even})).await["rules"].clone();
        assert_eq!(rules, expected(shares(place, [50.0, 50.0])));

        let winner = format!("{path}/winner");
        let wrong = call("POST", &winner, json!({"variant": "c"})).await;
        assert_eq!(wrong.status, 422);
        let error = wrong.json()["errors"][0].clone();
        assert_eq!(error["pointer"], "/variant");
        assert!(
            error["detail"].as_str().expect("text").contains("a, b"),
            "{error}"
        );
        let ended = call("POST", &winner, json!({"variant": "b"})).await;
        assert_eq!(ended.status, 200, "{:?}", ended.json());
        let ended = ended.json();
        assert_eq!(ended["longUrl"], format!("https://b.example/{place}"));
        assert_eq!(ended["rules"], json!([phones]));
        // Again, it changes nothing.
        let again = call("POST", &winner, json!({"variant": "b"})).await;
        assert_eq!((again.status, again.json()), (200, ended.clone()));
        // The default target wins.
        change(json!({"variants": variants(place)})).await;
        let ended = call("POST", &winner, json!({"variant": ""})).await.json();
        assert_eq!(ended["longUrl"], format!("https://b.example/{place}"));
        assert_eq!(ended["rules"], json!([phones]));
        change(json!({"variants": variants(place)})).await;
        assert_eq!(
            change(json!({"variants": null})).await["rules"],
            json!([phones])
        );
    }
    let link = json!({"campaignId": "1", "customSlug": "m"});
    assert_eq!(service.create(link).await.status, 201);
    for (method, path, body) in [
        ("PATCH", "/v1/links/m", json!({"variants": variants("")})),
        ("POST", "/v1/links/m/winner", json!({"variant": "b"})),
    ] {
        let refused = service
            .call(&service.writer, method, path, Some(body))
            .await;
        assert!([409, 422].contains(&refused.status), "{:?}", refused.json());
    }
}

#[tokio::test]
async fn faults_of_variants_are_reported_at_their_place() {
    let service = Service::with(|app| app.body_limit_bytes = 1 << 16).await;
    let variant = |name: &str, weight: Value| json!({"name": name, "weight": weight, "longUrl": "https://e.example/"});
    let share = json!({"percent": 10, "longUrl": "https://e.example/"});
    let ios = json!({"device": ["ios"], "longUrl": "https://e.example/"});
    let many = |count: usize| -> Value {
        (0..count)
            .map(|n| variant(&format!("v{n}"), json!(1)))
            .collect()
    };
    for (body, pointer) in [
        (json!({"variants": {}}), "/variants"),
        (json!({"variants": [1]}), "/variants/0"),
        (json!({"variants": many(21)}), "/variants"),
        (json!({"variants": many(20), "rules": [ios]}), "/variants"),
        (json!({"variants": many(2), "rules": [share]}), "/variants"),
        (
            json!({"variants": [variant("a", json!(0)), variant("b", json!(0))]}),
            "/variants",
        ),
        (
            json!({"variants": [variant("a", json!(-1))]}),
            "/variants/0/weight",
        ),
        (
            json!({"variants": [variant("a", json!("1"))]}),
            "/variants/0/weight",
        ),
        (
            json!({"variants": [variant("a b", json!(1))]}),
            "/variants/0/name",
        ),
        (
            json!({"variants": [variant("a", json!(1)), variant("a", json!(1))]}),
            "/variants/1/name",
        ),
        (
            json!({"variants": [{"name": "a", "weight": 1, "longUrl": "https://localhost/"}]}),
            "/variants/0/longUrl",
        ),
        (
            json!({"variants": [{"name": "a", "weight": 1}]}),
            "/variants/0/longUrl",
        ),
    ] {
        refused(&service, &body, pointer).await;
    }
}

/// Has a new link refused for one fault.
async fn refused(service: &Service, plan: &Value, pointer: &str) {
    let mut body = plan.clone();
    if body["campaignId"].is_null() && body["longUrl"].is_null() {
        body["longUrl"] = json!("https://example.com/a");
    }
    let answer = service.create(body).await;
    assert_eq!(answer.status, 422, "{pointer}: {:?}", answer.json());
    let errors = answer.json()["errors"].clone();
    assert_eq!(errors[0]["pointer"], pointer, "{errors}");
    assert_eq!(errors.as_array().map(Vec::len), Some(1), "{errors}");
}

#[tokio::test]
async fn the_rules_of_a_campaign_are_those_of_its_links() {
    let service = Service::new().await;
    let ios = |target: &str| json!([{"device": ["ios"], "longUrl": target}]);
    let body = json!({
        "name": "Spring", "longUrl": "https://shop.example.com/{code}?m={member}",
        "clickId": "sl", "rules": ios("https://apps.example.com/{member}"),
        "pausedTarget": "https://e.example/{member}/paused",
    });
    let path = "/v1/campaigns";
    let created = service
        .call(&service.campaigner, "POST", path, Some(body.clone()))
        .await;
    assert_eq!(created.status, 201, "{:?}", created.json());
    assert_eq!(created.json()["rules"], body["rules"]);
    let id = created.json()["id"].as_str().expect("an id").to_owned();
    let link = json!({"campaignId": id, "parameters": {"member": "ä"}, "customSlug": "m"});
    assert_eq!(service.create(link).await.status, 201);
    let answer = follow(&service, "m", &[IPHONE]).await;
    let location = answer.header("location").expect("a target");
    assert!(
        location.starts_with("https://apps.example.com/%C3%A4?sl="),
        "{location}"
    );
    let change = async |path: String, body: Value| {
        service
            .call(&service.campaigner, "PATCH", &path, Some(body))
            .await
    };
    let path = format!("/v1/campaigns/{id}");
    for (faulty, pointer) in [
        (
            json!({"rules": ios("https://e.example/{other}")}),
            "/rules/0/longUrl",
        ),
        (
            json!({"expiredTarget": "https://{member}/"}),
            "/expiredTarget",
        ),
    ] {
        let answer = change(path.clone(), faulty).await.json();
        assert_eq!(answer["errors"][0]["pointer"], pointer, "{answer}");
    }
    let body = json!({"rules": ios("https://e.example/{code}"), "clickId": null});
    assert_eq!(change(path.clone(), body).await.status, 200);
    let answer = follow(&service, "m", &[IPHONE]).await;
    assert_eq!(answer.header("location"), Some("https://e.example/m"));
    // A link takes all of it from its campaign.
    let own = json!({"rules": ios("https://e.example/"), "pausedTarget": "https://e.example/"});
    let answer = patch(&service, "/v1/links/m", own.clone()).await.json();
    for (place, pointer) in ["/rules", "/pausedTarget"].into_iter().enumerate() {
        assert_eq!(answer["errors"][place]["pointer"], pointer, "{answer}");
    }
    let mut link = own;
    link["campaignId"] = json!(id);
    link["parameters"] = json!({"member": "a"});
    let answer = service.create(link).await;
    assert_eq!(answer.status, 422);
    post(&service, &format!("{path}/pause")).await;
    let answer = follow(&service, "m", &[IPHONE]).await;
    let target = "https://e.example/%C3%A4/paused";
    assert_eq!(answer.header("location"), Some(target));
}

#[tokio::test]
async fn a_link_of_its_own_may_have_click_ids() {
    let service = Service::with(|app| app.body_limit_bytes = 1 << 16).await;
    let target = "https://e.example/a?b=c";
    let body =
        json!({"longUrl": target, "customSlug": "abc", "clickId": "sl", "redirectStatus": 308});
    let created = service.create(body).await;
    assert_eq!(
        (created.status, &created.json()["clickId"]),
        (201, &json!("sl"))
    );
    let answer = follow(&service, "abc", &[]).await;
    let location = answer.header("location").expect("a target");
    let id = location
        .strip_prefix("https://e.example/a?b=c&sl=")
        .expect(location);
    assert_eq!((answer.status, id.len()), (307, 22));
    // Another target has it too.
    let body = json!({"longUrl": "https://e.example/other"});
    let changed = patch(&service, "/v1/links/abc", body).await.json();
    assert_eq!(changed["clickId"], "sl");
    let answer = follow(&service, "abc", &[]).await;
    let location = answer.header("location").expect("a target");
    assert!(
        location.starts_with("https://e.example/other?sl="),
        "{location}"
    );
    let long = format!("https://e.example/{}", "a".repeat(8150));
    let body = json!({"longUrl": long});
    let answer = patch(&service, "/v1/links/abc", body).await;
    assert_eq!(answer.status, 422);
    let changed = patch(&service, "/v1/links/abc", json!({"clickId": null})).await;
    assert_eq!(changed.json()["clickId"], Value::Null);
    let answer = follow(&service, "abc", &[]).await;
    assert_eq!(answer.status, 308);
    assert_eq!(answer.header("location"), Some("https://e.example/other"));
    refused(
        &service,
        &json!({"longUrl": long, "clickId": "sl"}),
        "/clickId",
    )
    .await;
    refused(
        &service,
        &json!({"longUrl": target, "clickId": "a b"}),
        "/clickId",
    )
    .await;
    let id = spring(&service).await;
    let of_campaign = json!({"campaignId": id, "clickId": "sl", "parameters": {"member": "a"}});
    refused(&service, &of_campaign, "/clickId").await;
}
