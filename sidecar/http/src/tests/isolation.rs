//! A key with `ownLinksOnly` reaches nothing of other keys, by whatever operation.

use serde_json::{Value, json};
use shortlink_core::api_key::{KeyPolicy, Scope};
use shortlink_service::keys::NewKey;

use super::{Answer, Service, new_key};
use crate::openapi;

/// Links that a key reaches by an operation if its policy confines it to its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reach {
    /// The path names a link or campaign: one of another key answers like one that does not exist.
    Named,
    /// The parameter `code` names a link likewise; without it, the operation is about all links.
    NamedByQuery,
    /// Has only what is the key's own.
    Filtered,
    /// Creates something, which is the key's own.
    Creates,
    /// Is about all links: answers 403.
    OfAll,
    /// Needs a scope that such a key cannot have: answers 403.
    ByScope,
    /// Is about jobs, which have a test of their own.
    OfJobs,
    /// Needs no key, and has nothing of links that visitors do not see.
    Public,
}

/// The reach of each operation, by its id. A new operation needs a line here, which the test then checks.
fn reach(operation: &str) -> Option<Reach> {
    Some(match operation {
        "getLink"
        | "changeLink"
        | "revokeLink"
        | "pauseLink"
        | "resumeLink"
        | "listLinkHistory"
        | "explainCode"
        | "drawLink"
        | "getLinkStats"
        | "listLinkVisits"
        | "decodeCode"
        | "eraseLinkVisits"
        | "getCampaign"
        | "changeCampaign"
        | "revokeCampaign"
        | "pauseCampaign"
        | "resumeCampaign"
        | "countCampaignLinks"
        | "getCampaignStats"
        | "getCampaignClicks"
        | "listRecipients"
        | "getLinkConversions"
        | "getLinkVariants"
        | "getCampaignVariants"
        | "endLinkTest"
        | "endCampaignTest"
        | "getCampaignConversions" => Reach::Named,
        "listVisits" | "listenToVisits" => Reach::NamedByQuery,
        "listLinks" | "search" | "listCampaigns" | "eraseVisits" | "createConversions"
        | "reportCampaigns" => Reach::Filtered,
        "createLink" | "createLinks" | "createMessages" | "createCampaign" => Reach::Creates,
        "storeReceipts" => Reach::Filtered,
        "getStats" | "getDomainStats" | "listDomains" | "getCodespace" | "listUtmTemplates"
        | "storeUtmTemplate" | "deleteUtmTemplate" | "reportLinks" => Reach::OfAll,
        "createJob" | "listJobs" | "getJob" | "cancelJob" | "listJobResults" => Reach::OfJobs,
        "listKeys"
        | "createKey"
        | "getKey"
        | "changeKey"
        | "revokeKey"
        | "rotateKey"
        | "listPeople"
        | "getPerson"
        | "endSessions"
        | "blockPerson"
        | "unblockPerson"
        | "listAudit"
        | "listWebhooks"
        | "createWebhook"
        | "getWebhook"
        | "changeWebhook"
        | "deleteWebhook"
        | "pauseWebhook"
        | "resumeWebhook"
        | "rotateWebhook"
        | "replayWebhook"
        | "testWebhook"
        | "listWebhookAttempts" => Reach::ByScope,
        "isAlive" | "isReady" | "getMetrics" | "getDocumentation" | "getDescription"
        | "followLink" => Reach::Public,
        _ => return None,
    })
}

/// A service with a link and a campaign of each of two keys, of which the second reaches only its own.
struct Scene {
    service: Service,
    theirs: Owned,
    own: Owned,
}

/// A key with its link and its campaign.
struct Owned {
    id: String,
    key: String,
    code: &'static str,
    campaign: String,
}

fn confined() -> NewKey {
    let mut scopes = Scope::ALL.to_vec();
    scopes.retain(|scope| {
        !matches!(
            scope,
            Scope::Admin | Scope::KeysAdmin | Scope::WebhooksAdmin
        )
    });
    NewKey {
        policy: KeyPolicy {
            own_links_only: true,
            ..KeyPolicy::default()
        },
        ..new_key(&scopes)
    }
}

async fn owned(service: &Service, seed: u64, key: NewKey, code: &'static str) -> Owned {
    let (id, key) = service.key(seed, key).await;
    let create = async |path: &str, body: Value| {
        let created = service.call(&key, "POST", path, Some(body)).await;
        assert_eq!(created.status, 201);
        created.json()
    };
    let campaign = json!({"name": "secret", "longUrl": "https://secret.example/{code}"});
    let campaign = create("/v1/campaigns", campaign).await;
    let campaign = campaign["id"].as_str().expect("an id").to_owned();
    let link = json!({
        "longUrl": "https://secret.example/", "customSlug": code, "externalId": "same",
        "note": "secret",
    });
    create("/v1/links", link).await;
    create("/v1/links", json!({"campaignId": campaign})).await;
    Owned {
        id,
        key,
        code,
        campaign,
    }
}

impl Scene {
    async fn new() -> Self {
        let service = Service::new().await;
        let theirs = owned(&service, 1, new_key(&[Scope::Admin]), "theirs").await;
        let own = owned(&service, 2, confined(), "own").await;
        Self {
            service,
            theirs,
            own,
        }
    }

    /// Sends a request with the key that reaches only its own links.
    async fn ask(&self, method: &str, path: &str) -> Answer {
        let is_read = matches!(method, "GET" | "DELETE");
        let body = (!is_read).then(|| json!({"note": "changed", "overlapSeconds": 0}));
        let body = body.filter(|_| matches!(method, "PATCH" | "PUT") || path.ends_with("/rotate"));
        self.service.call(&self.own.key, method, path, body).await
    }
}

/// A path with the code and the id that it names.
fn named(path: &str, code: &str, id: &str) -> String {
    path.replace("{code}", code).replace("{id}", id)
}

#[tokio::test]
async fn no_operation_reaches_links_and_campaigns_of_other_keys() {
    let scene = Scene::new().await;
    let (theirs, own) = (&scene.theirs, &scene.own);
    let description = serde_json::from_str::<Value>(&openapi::text()).expect("JSON");
    let paths = description["paths"].as_object().expect("paths");
    let each = paths.iter().flat_map(|(path, methods)| {
        let methods = methods.as_object().expect("methods").iter();
        methods.filter_map(move |(method, it)| Some((path, method, it["operationId"].as_str()?)))
    });
    let mut walked = 0;
    for (path, method, operation) in each {
        let Some(reach) = reach(operation) else {
            panic!("{operation}: which links may a key with ownLinksOnly reach by it?");
        };
        let method = &*method.to_uppercase();
        // Answers about theirs and about what does not exist are the same, those about its own are others.
        let paths: Option<[String; 3]> = match reach {
            Reach::Named => Some([
                named(path, theirs.code, &theirs.campaign),
                named(path, "nothing", "4711"),
                named(path, own.code, &own.campaign),
            ]),
            Reach::NamedByQuery => {
                Some([theirs.code, "nothing", own.code].map(|code| format!("{path}?code={code}")))
            }
            _ => None,
        };
        if let Some([of_theirs, of_nothing, of_own]) = paths {
            let answer = scene.ask(method, &of_theirs).await;
            assert_eq!(answer.status, 404, "{operation}");
            let unknown = scene.ask(method, &of_nothing).await;
            assert_eq!(answer.json(), unknown.json(), "{operation}");
            let answer = scene.ask(method, &of_own).await;
            assert_ne!(answer.status, 403, "{operation}");
            assert_ne!(answer.body, unknown.body, "{operation}");
        }
        match reach {
            Reach::NamedByQuery | Reach::OfAll => {
                let answer = scene.ask(method, path).await;
                assert_eq!(answer.status, 403, "{operation}");
                let detail = answer.json()["detail"].to_string();
                assert!(detail.contains("ownLinksOnly"), "{operation}: {detail}");
            }
            Reach::ByScope => {
                let answer = scene
                    .ask(method, &named(path, theirs.code, &theirs.id))
                    .await;
                assert_eq!(answer.status, 403, "{operation}");
            }
            Reach::Filtered if method == "GET" => {
                let of_theirs = format!("?createdBy={}", theirs.id);
                let queries = match operation {
                    "search" => vec!["?q=secret"],
                    _ => vec!["", "?limit=1", &of_theirs],
                };
                for query in queries {
                    if matches!(operation, "listCampaigns" | "reportCampaigns")
                        && query.contains("createdBy")
                    {
                        continue;
                    }
                    let answer = scene.ask(method, &format!("{path}{query}")).await;
                    assert_eq!(answer.status, 200, "{operation}");
                    let text = String::from_utf8(answer.body).expect("text");
                    assert!(!text.contains(&theirs.id), "{operation}: {text}");
                    assert!(!text.contains("theirs"), "{operation}: {text}");
                    let campaign = format!("\"id\":\"{}\"", own.campaign);
                    let of_own = [&own.id, "secret.example", &campaign];
                    let is_own = of_own.iter().any(|it| text.contains(*it));
                    assert_eq!(is_own, !query.contains("createdBy"), "{operation}: {text}");
                }
            }
            _ => {}
        }
        walked += 1;
    }
    assert!(walked > 40);
    // Nothing of the others has changed.
    for path in [
        format!("/v1/links/{}", theirs.code),
        format!("/v1/campaigns/{}", theirs.campaign),
    ] {
        let theirs = scene.service.call(&theirs.key, "GET", &path, None).await;
        let theirs = theirs.json();
        assert_eq!(
            (&theirs["revision"], &theirs["state"]),
            (&json!(1), &json!("live"))
        );
    }
}

#[tokio::test]
async fn new_links_neither_join_nor_find_those_of_other_keys() {
    let scene = Scene::new().await;
    let (theirs, own) = (&scene.theirs, &scene.own);
    let create = async |key: &str, body: Value| {
        scene
            .service
            .call(key, "POST", "/v1/links", Some(body))
            .await
    };
    let of_theirs = create(&own.key, json!({"campaignId": theirs.campaign})).await;
    let of_none = create(&own.key, json!({"campaignId": "4711"})).await;
    assert_eq!(of_theirs.status, 422);
    assert_eq!(of_theirs.json(), of_none.json());
    let path = |of: &str, id: &str| format!("/v1/{of}?campaignId={id}");
    for (id, status) in [
        (&*theirs.campaign, 404),
        ("4711", 404),
        (&own.campaign, 200),
    ] {
        for of in ["links/batch", "messages"] {
            let rows = Some(json!([{}]));
            let path = path(of, id);
            let answer = scene.service.call(&own.key, "POST", &path, rows).await;
            assert_eq!(answer.status, status, "{path}");
        }
    }
    let text = "https://example.com/";
    for (path, of_theirs, of_none) in [
        (
            "/v1/links/batch",
            json!({"campaignId": theirs.campaign}),
            json!({"campaignId": "4711"}),
        ),
        (
            "/v1/messages",
            json!({"text": text, "campaignId": theirs.campaign}),
            json!({"text": text, "campaignId": "4711"}),
        ),
    ] {
        let rows = json!([of_theirs, of_none]);
        let answer = scene.service.call(&own.key, "POST", path, Some(rows)).await;
        let results = answer.json();
        assert_eq!(results[0]["status"], 422, "{path}");
        assert_eq!(results[0]["problem"], results[1]["problem"], "{path}");
    }

    let same = json!({"longUrl": "https://example.com/", "dedupe": true});
    let first = create(&theirs.key, same.clone()).await.json();
    let second = create(&own.key, same.clone()).await;
    assert_eq!(second.status, 201);
    assert_ne!(second.json()["shortCode"], first["shortCode"]);
    let third = create(&own.key, same.clone()).await;
    assert_eq!(third.status, 200);
    assert_eq!(third.json()["shortCode"], second.json()["shortCode"]);
    let fourth = create(&theirs.key, same).await;
    assert_eq!(fourth.json()["shortCode"], first["shortCode"]);
    // A code is one for all keys.
    let taken = json!({"longUrl": "https://example.com/", "customSlug": theirs.code});
    assert_eq!(create(&own.key, taken).await.status, 409);
}

#[tokio::test]
async fn jobs_change_only_own_links_and_are_shown_to_their_creator() {
    let scene = Scene::new().await;
    let (service, theirs, own) = (&scene.service, &scene.theirs, &scene.own);
    let job = async |key: &str, body: Value| {
        let created = service.call(key, "POST", "/v1/jobs", Some(body)).await;
        assert_eq!(created.status, 202);
        let id = created.json()["id"].clone();
        service.work_off(&id).await;
        format!("/v1/jobs/{id}")
    };
    let of_theirs = job(
        &theirs.key,
        json!({"action": "pause", "codes": ["nothing"]}),
    )
    .await;
    for selection in [
        json!({"codes": [theirs.code, own.code]}),
        json!({"externalId": "same"}),
        json!({"campaignId": theirs.campaign}),
    ] {
        let mut body = selection.clone();
        body["action"] = json!("pause");
        let path = job(&own.key, body).await;
        let shown = service.call(&own.key, "GET", &path, None).await.json();
        assert_eq!(shown["state"], "done", "{shown}");
        let results = service
            .call(&own.key, "GET", &format!("{path}/results"), None)
            .await;
        let text = String::from_utf8(results.body).expect("text");
        let is_named = selection.get("codes").is_some();
        assert_eq!(text.contains(theirs.code), is_named, "{text}");
        let link = format!("/v1/links/{}", theirs.code);
        let link = service.call(&theirs.key, "GET", &link, None).await.json();
        assert_eq!(link["state"], "live", "{selection}");
    }
    for (method, path) in [
        ("GET", of_theirs.clone()),
        ("GET", format!("{of_theirs}/results")),
        ("DELETE", of_theirs),
    ] {
        assert_eq!(
            service.call(&own.key, method, &path, None).await.status,
            404,
            "{path}"
        );
    }
    let list = service.call(&own.key, "GET", "/v1/jobs", None).await.json();
    assert_eq!(list["jobs"].as_array().map(Vec::len), Some(3), "{list}");
    let all = service
        .call(&theirs.key, "GET", "/v1/jobs", None)
        .await
        .json();
    assert_eq!(all["jobs"].as_array().map(Vec::len), Some(4), "{all}");
}

#[tokio::test]
async fn visits_are_erased_only_of_own_links() {
    let scene = Scene::new().await;
    let erase = async |query: &str| {
        let path = format!("/v1/visits?{query}");
        let answer = scene
            .service
            .call(&scene.own.key, "DELETE", &path, None)
            .await;
        assert_eq!(answer.status, 200);
        answer.json()["links"].clone()
    };
    // Both keys have a link with this id, and one in a campaign of theirs.
    assert_eq!(erase("externalId=same").await, 1);
    assert_eq!(
        erase(&format!("campaignId={}", scene.own.campaign)).await,
        1
    );
    assert_eq!(
        erase(&format!("campaignId={}", scene.theirs.campaign)).await,
        0
    );
}

#[tokio::test]
async fn a_successor_reaches_the_links_of_the_keys_before_it() {
    let scene = Scene::new().await;
    let (service, own) = (&scene.service, &scene.own);
    let path = format!("/v1/keys/{}/rotate", own.id);
    let rotation = Some(json!({"overlapSeconds": 600}));
    let rotated = service
        .call(&scene.theirs.key, "POST", &path, rotation)
        .await;
    assert_eq!(rotated.status, 201);
    let successor = rotated.json()["secret"]
        .as_str()
        .expect("a secret")
        .to_owned();
    let body = json!({"longUrl": "https://example.com/", "customSlug": "later"});
    let made = service
        .call(&successor, "POST", "/v1/links", Some(body))
        .await;
    assert_eq!(made.status, 201);
    for key in [&successor, &own.key] {
        for (code, status) in [(own.code, 200), ("later", 200), (scene.theirs.code, 404)] {
            let path = format!("/v1/links/{code}");
            assert_eq!(
                service.call(key, "GET", &path, None).await.status,
                status,
                "{code}"
            );
        }
        // In pages, although each key has an index of its own.
        let mut codes = Vec::new();
        let mut cursor = String::new();
        loop {
            let path = format!("/v1/links?limit=1{cursor}");
            let page = service.call(key, "GET", &path, None).await.json();
            let links = page["links"].as_array().expect("links").iter();
            codes.extend(links.map(|link| link["shortCode"].clone()));
            match page["nextCursor"].as_str() {
                Some(next) => cursor = format!("&cursor={next}"),
                None => break,
            }
        }
        assert_eq!(codes.len(), 3);
        assert!(codes.contains(&json!(own.code)) && codes.contains(&json!("later")));
        let live = service
            .call(key, "GET", "/v1/links?state=live", None)
            .await
            .json();
        assert_eq!(live["links"].as_array().map(Vec::len), Some(3));
        let campaigns = service.call(key, "GET", "/v1/campaigns", None).await.json();
        assert_eq!(campaigns["campaigns"].as_array().map(Vec::len), Some(1));
    }
}

#[tokio::test]
async fn a_key_that_manages_keys_or_reads_the_audit_log_cannot_be_confined() {
    let scene = Scene::new().await;
    let admin = &scene.theirs.key;
    let send = async |method: &str, path: &str, body: Value| {
        scene.service.call(admin, method, path, Some(body)).await
    };
    let policy = json!({"ownLinksOnly": true});
    for scope in ["admin", "keys:admin", "webhooks:admin"] {
        let body = json!({"name": "x", "scopes": ["links:read", scope], "policy": policy});
        let answer = send("POST", "/v1/keys", body).await;
        assert_eq!(
            (answer.status, answer.pointers()),
            (422, vec!["/policy/ownLinksOnly".into()])
        );
        let path = format!("/v1/keys/{}", scene.own.id);
        let answer = send("PATCH", &path, json!({"scopes": [scope]})).await;
        assert_eq!(
            (answer.status, answer.pointers()),
            (422, vec!["/policy/ownLinksOnly".into()])
        );
    }
    // A policy that is lifted shows everything at once.
    let path = format!("/v1/keys/{}", scene.own.id);
    assert_eq!(
        send("PATCH", &path, json!({"policy": null})).await.status,
        200
    );
    let link = format!("/v1/links/{}", scene.theirs.code);
    assert_eq!(scene.ask("GET", &link).await.status, 200);
    assert_eq!(
        send("PATCH", &path, json!({"policy": policy})).await.status,
        200
    );
    assert_eq!(scene.ask("GET", &link).await.status, 404);
}
