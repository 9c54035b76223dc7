use super::*;

#[tokio::test]
async fn the_space_of_codes_is_told_with_the_chance_of_a_guess() {
    let service = Service::new().await;
    for slug in ["chosen", "taken1"] {
        let body = json!({ "longUrl": "https://example.com/", "customSlug": slug });
        service.create(body).await;
    }
    for _ in 0..3 {
        service
            .create(json!({ "longUrl": "https://example.com/" }))
            .await;
    }
    let answer = service.get("/v1/codespace").await;
    assert_eq!(answer.status, 200);
    let body = answer.json();
    assert_eq!(
        (&body["strategy"], &body["oneIn"]),
        (&json!("permuted"), &json!(1000))
    );
    let lengths = body["lengths"].as_array().expect("a list");
    let of = |length: u64| {
        let found = lengths.iter().find(|it| it["length"] == length);
        found.expect("the length").clone()
    };
    assert_eq!(lengths.len(), 2);
    let chosen = of(6);
    assert_eq!(
        (&chosen["links"], &chosen["isIssued"]),
        (&json!(2), &json!(false))
    );
    assert_eq!(chosen["codes"], json!(62u64.pow(6)));
    assert_eq!(chosen["capacity"], Value::Null);
    // A request can have this length issued as well, with a check character.
    let one_in = |codes: u64| json!((codes as f64 / 2.0).round());
    assert_eq!(chosen["guess"]["oneIn"], one_in(62u64.pow(5)));
    assert_eq!(chosen["blindGuess"]["oneIn"], one_in(62u64.pow(6)));
    let issued = of(8);
    assert_eq!(
        (&issued["links"], &issued["linksLast7Days"]),
        (&json!(3), &json!(3))
    );
    assert_eq!(issued["codes"], json!(62u64.pow(7)));
    assert_eq!(issued["capacity"], json!(62u64.pow(7) / 1000));
    assert_eq!(
        issued["guess"]["oneIn"],
        json!((62u64.pow(7) as f64 / 3.0).round())
    );
    assert_eq!(
        issued["blindGuess"]["oneIn"],
        json!((62u64.pow(8) as f64 / 3.0).round())
    );
    assert_eq!(issued["pool"], json!({ "unused": 0, "used": 0, "void": 0 }));
    let numbers =
        json!({"all": 62u64.pow(7), "used": 3, "leased": 19_997, "returned": 0, "burnt": 0});
    assert_eq!(issued["numbers"], numbers);
    let ready = service.get("/readyz").await.json();
    assert_eq!(
        (&ready["status"], &ready["checks"]["codes"]),
        (&json!("ready"), &numbers)
    );
    assert_eq!(issued["fullAt"], Value::Null);
    assert_eq!(issued["neighbourGuess"], Value::Null);
}

#[tokio::test]
async fn a_code_of_a_sequence_does_not_give_its_neighbours_away() {
    let service = Service::new().await;
    let row = json!({"longUrl": "https://example.com/", "strategy": "sequence", "codeLength": 5});
    let create = || service.call(&service.writer, "POST", "/v1/links", Some(row.clone()));
    assert_eq!(create().await.status, 201);
    let chance = async || {
        let body = service.get("/v1/codespace").await.json();
        let lengths = body["lengths"].as_array().expect("a list").clone();
        let of_length = lengths.into_iter().find(|it| it["length"] == 6);
        of_length.expect("the length")["neighbourGuess"]["oneIn"].clone()
    };
    // The first number has one character, which leaves three fillers, although more are leased.
    assert_eq!(chance().await, json!(9_533_120.0));
    // No more than 3,844 of them have codes: those of two characters leave two fillers.
    let mut statuses = Vec::new();
    while statuses.last() != Some(&422) && statuses.len() < 600 {
        statuses.push(create().await.status);
    }
    let made = statuses.len() - 1;
    assert!((400..=520).contains(&made), "{made}");
    assert!(statuses[..made].iter().all(|status| *status == 201));
}

#[tokio::test]
async fn a_code_is_decoded() {
    let service = Service::new().await;
    let row = json!({"longUrl": "https://example.com/", "strategy": "sequence"});
    let mut numbers = Vec::new();
    let mut code = String::new();
    for _ in 0..3 {
        let made = service.create(row.clone()).await.json();
        code = made["shortCode"].as_str().expect("a code").to_owned();
        let decoded = service.get(&format!("/v1/codespace/{code}")).await.json();
        assert_eq!(
            (&decoded["length"], &decoded["check"]),
            (&json!(8), &json!("valid"))
        );
        assert_eq!(decoded["shortCode"], json!(code));
        numbers.push(decoded["sequenceNumber"].as_u64().expect("a number"));
    }
    assert!(
        numbers.is_sorted_by(|one, other| one < other && other - one <= 32),
        "{numbers:?}"
    );
    let last = if code.ends_with('a') { "b" } else { "a" };
    let wrong = format!("/v1/codespace/{}{last}", &code[..7]);
    assert_eq!(service.get(&wrong).await.json()["check"], "wrong");
    let short = service.get("/v1/codespace/ab").await.json();
    assert_eq!(
        (&short["check"], &short["sequenceNumber"]),
        (&json!("none"), &Value::Null)
    );
    assert_eq!(service.get("/v1/codespace/a.b").await.status, 404);
    let campaigner = service.look("/v1/codespace/ab").await;
    assert_eq!(campaigner.status, 403);
}
