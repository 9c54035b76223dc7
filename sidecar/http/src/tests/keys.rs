//! `/v1/keys` and `/v1/audit`.

use jiff::SignedDuration;
use serde_json::{Value, json};
use shortlink_core::api_key::Scope;

use super::{Answer, Service, new_key};

/// A service and the text of an administrator's key.
async fn service() -> (Service, String) {
    let service = Service::new().await;
    let (_, admin) = service.key(1, new_key(&[Scope::Admin])).await;
    (service, admin)
}

fn text(answer: &Answer, member: &str) -> String {
    let body = answer.json();
    let text = body[member].as_str();
    text.unwrap_or_else(|| panic!("no {member} in {body}"))
        .to_owned()
}

#[tokio::test]
async fn a_key_lives_from_creation_to_revocation() {
    let (service, admin) = service().await;
    let send = async |method: &str, path: &str, body: Option<Value>| {
        service.call(&admin, method, path, body).await
    };
    let body = json!({
        "name": "shop",
        "scopes": ["links:write", "links:read", "links:write"],
        "expiresAt": "2026-07-01T02:00:00.1234567+02:00",
        "rateLimit": {"requestsPerSecond": 5},
        "policy": {
            "strategies": ["pool"],
            "minBodyLength": 7,
            "allowedDomains": ["Example.com.", "=b\u{fc}cher.example"],
            "minCustomLength": 5,
        },
    });
    let created = send("POST", "/v1/keys", Some(body)).await;
    assert_eq!(created.status, 201);
    assert_eq!(created.header("cache-control"), Some("no-store"));
    let (id, secret) = (text(&created, "id"), text(&created, "secret"));
    let path = format!("/v1/keys/{id}");
    assert_eq!(created.header("location"), Some(&*path));
    let mut expected = json!({
        "id": id,
        "name": "shop",
        "scopes": ["links:read", "links:write"],
        "state": "live",
        "expiresAt": "2026-07-01T00:00:00.123Z",
        "rateLimit": {"requestsPerSecond": 5, "burst": 5},
        "policy": {
            "strategies": ["pool"],
            "minBodyLength": 7,
            "maxBodyLength": null,
            "allowedDomains": ["example.com", "=xn--bcher-kva.example"],
            "customCodes": true,
            "minCustomLength": 5,
            "maxLinks": null,
            "ownLinksOnly": false,
        },
        "linksCreated": 0,
        "successorId": null,
        "createdAt": "2026-06-01T00:00:00Z",
        "revokedAt": null,
    });
    // The secret is shown once.
    assert_eq!(send("GET", &path, None).await.json(), expected);
    let call = async || service.call(&secret, "GET", "/v1/links", None).await.status;
    assert_eq!(call().await, 200);

    service.clock.advance(SignedDuration::from_secs(1));
    let change = json!({
        "name": "other", "scopes": ["links:read"], "expiresAt": null,
        "rateLimit": {"requestsPerSecond": 2, "burst": 9}, "policy": {"maxBodyLength": 9},
    });
    let changed = send("PATCH", &path, Some(change)).await;
    assert_eq!(changed.status, 200);
    expected
        .as_object_mut()
        .expect("an object")
        .remove("linksCreated");
    expected["name"] = json!("other");
    expected["scopes"] = json!(["links:read"]);
    expected["expiresAt"] = Value::Null;
    expected["rateLimit"] = json!({"requestsPerSecond": 2, "burst": 9});
    expected["policy"] = json!({
        "strategies": null, "minBodyLength": null, "maxBodyLength": 9, "allowedDomains": null,
        "customCodes": true, "minCustomLength": null, "maxLinks": null,
        "ownLinksOnly": false,
    });
    assert_eq!(changed.json(), expected);
    // At once, although the key was used moments ago.
    let link = json!({"longUrl": "https://example.com/"});
    let refused = service.call(&secret, "POST", "/v1/links", Some(link)).await;
    assert_eq!(refused.status, 403);
    let cleared = json!({"rateLimit": null, "policy": null});
    let cleared = send("PATCH", &path, Some(cleared)).await.json();
    assert_eq!(cleared["rateLimit"], Value::Null);
    assert_eq!(cleared["policy"]["maxBodyLength"], Value::Null);

    for _ in 0..2 {
        let revoked = send("DELETE", &path, None).await;
        assert_eq!(revoked.status, 200);
        let revoked = revoked.json();
        assert_eq!(revoked["state"], "revoked");
        assert_eq!(revoked["revokedAt"], "2026-06-01T00:00:01Z");
        assert_eq!(call().await, 401);
    }
    let late = send("PATCH", &path, Some(json!({"name": "late"}))).await;
    assert_eq!(late.status, 409);
}

#[tokio::test]
async fn a_key_is_rotated_with_an_overlap() {
    let (service, admin) = service().await;
    let body = json!({"name": "shop", "scopes": ["links:read"]});
    let created = service.call(&admin, "POST", "/v1/keys", Some(body)).await;
    let path = format!("/v1/keys/{}/rotate", text(&created, "id"));
    let old = text(&created, "secret");
    let rotate = async |body: Value| service.call(&admin, "POST", &path, Some(body)).await;
    for body in [
        json!({}),
        json!({"overlapSeconds": null}),
        json!({"overlapSeconds": -1}),
        json!({"overlapSeconds": 1.5}),
        json!({"overlapSeconds": "1"}),
        json!({"overlapSeconds": 90 * 86400 + 1}),
    ] {
        let answer = rotate(body.clone()).await;
        assert_eq!(
            (answer.status, answer.pointers()),
            (422, vec!["/overlapSeconds".to_owned()]),
            "{body}"
        );
    }
    let rotated = rotate(json!({"overlapSeconds": 60})).await;
    assert_eq!(rotated.status, 201);
    assert_eq!(rotated.header("cache-control"), Some("no-store"));
    let new = text(&rotated, "secret");
    let successor = rotated.json();
    assert_eq!(
        (&successor["name"], &successor["scopes"]),
        (&json!("shop"), &json!(["links:read"]))
    );
    let predecessor = &successor["predecessor"];
    assert_eq!(predecessor["id"], created.json()["id"]);
    assert_eq!(predecessor["successorId"], successor["id"]);
    assert_eq!(predecessor["expiresAt"], "2026-06-01T00:01:00Z");
    let location = format!("/v1/keys/{}", text(&rotated, "id"));
    assert_eq!(rotated.header("location"), Some(&*location));
    assert_eq!(rotate(json!({"overlapSeconds": 60})).await.status, 409);
    let call = async |key: &str| service.call(key, "GET", "/v1/links", None).await.status;
    assert_eq!((call(&old).await, call(&new).await), (200, 200));
    service.clock.advance(SignedDuration::from_secs(60));
    assert_eq!((call(&old).await, call(&new).await), (401, 200));
    let path = format!("/v1/keys/{}", text(&created, "id"));
    let expired = service.call(&admin, "GET", &path, None).await;
    assert_eq!(text(&expired, "state"), "expired");
    let path = "/v1/keys/nobody/rotate";
    let body = json!({"overlapSeconds": 0});
    let answer = service.call(&admin, "POST", path, Some(body)).await;
    assert_eq!(answer.status, 404);
}

#[tokio::test]
async fn every_error_of_a_body_is_told_at_once() {
    let (service, admin) = service().await;
    let with = |members: Value| {
        let mut body = json!({"name": "x", "scopes": ["links:read"]});
        for (name, value) in members.as_object().expect("members") {
            body[name] = value.clone();
        }
        body
    };
    let (limit, policy) = (
        |limit: Value| with(json!({"rateLimit": limit})),
        |policy: Value| with(json!({"policy": policy})),
    );
    for (body, pointers) in [
        (json!({}), &["/name", "/scopes"][..]),
        (json!({"name": 1, "scopes": 1}), &["/name", "/scopes"]),
        (json!({"name": null, "scopes": null}), &["/name", "/scopes"]),
        (with(json!({"name": " "})), &["/name"]),
        (with(json!({"name": "a\nb"})), &["/name"]),
        (with(json!({"scopes": []})), &["/scopes"]),
        (
            with(json!({"scopes": ["links:read", "root", 1]})),
            &["/scopes/1", "/scopes/2"],
        ),
        (with(json!({"expiresAt": "soon"})), &["/expiresAt"]),
        (
            with(json!({"expiresAt": "2026-06-01T00:00:00Z"})),
            &["/expiresAt"],
        ),
        (limit(json!(5)), &["/rateLimit"]),
        (limit(json!({})), &["/rateLimit/requestsPerSecond"]),
        (
            limit(json!({"requestsPerSecond": 0, "burst": 0, "x": 1})),
            &[
                "/rateLimit/requestsPerSecond",
                "/rateLimit/burst",
                "/rateLimit/x",
            ],
        ),
        (
            limit(json!({"requestsPerSecond": 1_000_001})),
            &["/rateLimit/requestsPerSecond"],
        ),
        (policy(json!([])), &["/policy"]),
        (policy(json!({"strategies": []})), &["/policy/strategies"]),
        (
            policy(json!({"strategies": ["pool", "luck"]})),
            &["/policy/strategies/1"],
        ),
        (
            policy(json!({"minBodyLength": 0, "maxBodyLength": 13})),
            &["/policy/minBodyLength", "/policy/maxBodyLength"],
        ),
        (
            policy(json!({"minBodyLength": 8, "maxBodyLength": 7})),
            &["/policy/minBodyLength"],
        ),
        (
            policy(json!({"allowedDomains": ["example.com", "*.example.org", ""]})),
            &["/policy/allowedDomains/1", "/policy/allowedDomains/2"],
        ),
        (
            policy(json!({"customCodes": "no", "minCustomLength": 65})),
            &["/policy/customCodes", "/policy/minCustomLength"],
        ),
        (
            policy(json!({"allowedDomains": []})),
            &["/policy/allowedDomains"],
        ),
        (with(json!({"secret": "x"})), &["/secret"]),
    ] {
        let answer = service
            .call(&admin, "POST", "/v1/keys", Some(body.clone()))
            .await;
        assert_eq!(answer.status, 422, "{body}");
        assert_eq!(answer.pointers(), pointers, "{body}");
    }
    // No key was created: only the four keys of the service exist.
    let keys = service.call(&admin, "GET", "/v1/keys", None).await.json();
    assert_eq!(keys["keys"].as_array().map(Vec::len), Some(4));
}

#[tokio::test]
async fn rights_are_not_handed_out_by_who_lacks_them_and_the_last_administrator_stays() {
    let (service, admin) = service().await;
    let (_, manager) = service.key(2, new_key(&[Scope::KeysAdmin])).await;
    let body = |scope: &str| json!({"name": "x", "scopes": [scope]});
    for (scope, status) in [("keys:admin", 201), ("links:read", 403), ("admin", 403)] {
        let answer = service
            .call(&manager, "POST", "/v1/keys", Some(body(scope)))
            .await;
        assert_eq!(answer.status, status, "{scope}");
        if status == 403 {
            let detail = answer.json()["detail"].to_string();
            assert!(detail.contains(scope), "{detail}");
        }
    }
    let id = admin.split('_').nth(1).expect("an id");
    let path = format!("/v1/keys/{id}");
    for (key, method, body, status) in [
        (&manager, "DELETE", None, 403),
        (&manager, "PATCH", Some(json!({"name": "mine"})), 403),
        (&admin, "DELETE", None, 409),
        (
            &admin,
            "PATCH",
            Some(json!({"scopes": ["links:read"]})),
            409,
        ),
        (
            &admin,
            "PATCH",
            Some(json!({"expiresAt": "2026-06-01T00:00:01Z"})),
            409,
        ),
        (&admin, "PATCH", Some(json!({"name": "mine"})), 200),
    ] {
        let answer = service.call(key, method, &path, body.clone()).await;
        assert_eq!(answer.status, status, "{method} {body:?}");
    }
    let other = service
        .call(&admin, "POST", "/v1/keys", Some(body("admin")))
        .await;
    assert_eq!(other.status, 201);
    let answer = service.call(&admin, "DELETE", &path, None).await;
    assert_eq!(answer.status, 200);
    assert_eq!(service.call(&admin, "GET", &path, None).await.status, 401);
}

#[tokio::test]
async fn keys_and_the_audit_log_are_paged() {
    let (service, admin) = service().await;
    for number in 0..3 {
        service.clock.advance(SignedDuration::from_secs(1));
        let body = json!({"name": format!("k{number}"), "scopes": ["links:read"]});
        let answer = service.call(&admin, "POST", "/v1/keys", Some(body)).await;
        assert_eq!(answer.status, 201);
    }
    for (listing, items, name) in [
        ("/v1/keys", "keys", "/name"),
        ("/v1/audit", "entries", "/detail/name"),
    ] {
        let mut path = format!("{listing}?limit=4");
        let mut pages = Vec::new();
        loop {
            let page = service.call(&admin, "GET", &path, None).await.json();
            let names: Vec<String> = page[items]
                .as_array()
                .expect("items")
                .iter()
                .map(|item| item.pointer(name).expect("a name").to_string())
                .collect();
            pages.push(names.join(" ").replace('"', ""));
            let Some(cursor) = page["nextCursor"].as_str() else {
                break;
            };
            path = format!("{listing}?limit=4&cursor={cursor}");
        }
        assert_eq!(pages, ["k2 k1 k0 test", "test test test"], "{listing}");
    }
    let links = service.get("/v1/links?limit=1").await.json();
    assert!(links["nextCursor"].is_null());
    let keys = service.call(&admin, "GET", "/v1/keys?limit=1", None).await;
    let of_keys = text(&keys, "nextCursor");
    for path in [
        "/v1/keys?limit=0".to_owned(),
        "/v1/keys?limit=1001".to_owned(),
        "/v1/keys?cursor=x".to_owned(),
        "/v1/keys?state=live".to_owned(),
        "/v1/audit?limit=x".to_owned(),
        format!("/v1/audit?cursor={of_keys}"),
        "/v1/audit?key=x".to_owned(),
    ] {
        let answer = service.call(&admin, "GET", &path, None).await;
        assert_eq!(answer.status, 400, "{path}");
    }
    for (query, count) in [
        ("action=key.create", 7),
        ("action=key.revoke", 0),
        (
            &*format!("keyId={}", admin.split('_').nth(1).expect("an id")),
            3,
        ),
        ("subject=key:nobody", 0),
    ] {
        let path = format!("/v1/audit?{query}");
        let answer = service.call(&admin, "GET", &path, None).await.json();
        let entries = answer["entries"].as_array().map(Vec::len);
        assert_eq!(entries, Some(count), "{query}");
    }
}
