//! `shortlink messages`

use serde_json::{Value, json};
use shortlink_tests::stack::{Stack, text};

use super::{User, field, path, values};

const TEXT: &str = "Hi {name}, your offer: https://shop.example.com/spring?m={member}.";

/// The code of the first link of a message.
fn code(message: &Value) -> String {
    message["codes"][0].as_str().expect("a code").to_owned()
}

#[test]
fn the_urls_of_texts_become_links() {
    let stack = Stack::start();
    let user = User::new(&stack);
    let create = ["messages", "create", TEXT, "--parameter", "name=Ann"];
    let with_member = [&create[..], &["--parameter", "member=4711"]].concat();
    let message = user.json(&with_member);
    let code = code(&message);
    let base = format!("http://localhost:{}", stack.nginx.public_port);
    assert_eq!(
        message["text"],
        format!("Hi Ann, your offer: {base}/{code}.")
    );
    let answer = stack.follow(&code);
    assert_eq!(
        answer.location(),
        Some("https://shop.example.com/spring?m=4711")
    );
    let shown = user.ok(&with_member);
    assert_eq!(field(&shown, "before"), Some("1 segments (GSM-7, 59)"));
    let quiet = user.ok(&[&with_member[..], &["--quiet"]].concat());
    assert!(
        quiet.starts_with(&format!("Hi Ann, your offer: {base}/")),
        "{quiet}"
    );
    let refused = user.run(&create);
    assert_eq!(refused.code, Some(1));
    assert!(refused.error.contains("member"), "{}", refused.error);
}

#[test]
fn a_file_of_messages_is_shortened_once() {
    let stack = Stack::start();
    let user = User::new(&stack);
    let campaign = user.json(&[
        "campaigns",
        "create",
        "Spring",
        "https://shop.example.com/spring?m={member}",
    ]);
    let id = text(&campaign, "id");
    let mut rows = String::from("text,parameters.name,parameters.member,externalId\n");
    for row in 0..50 {
        rows.push_str(&format!("\"{TEXT}\",Ann,{row},r-{row}\n"));
    }
    rows.push_str("\"No link\",Ann,,\n");
    rows.push_str(&format!("\"{TEXT}\",Ann,,r-x\n"));
    let file = user.file("messages.csv", &rows);
    let import = ["messages", "import", path(&file), "--campaign", &id];
    let lost = user.run(&import);
    assert_eq!(lost.code, Some(2));
    assert!(lost.error.contains("--results"), "{}", lost.error);

    let results = user.home.join("results.ndjson");
    let with_results = [&import[..], &["--results", path(&results)]].concat();
    let mut before = None;
    for _run in 0..2 {
        let said = user.run(&with_results);
        assert_eq!(said.code, Some(1), "{}", said.error);
        assert!(said.error.contains("line 53"), "{}", said.error);
        assert_eq!(
            said.out,
            "52 rows: 50 messages with new links, 51 segments before and 51 after, 1 without new links, 1 failed\n"
        );
        let rows = values(&std::fs::read_to_string(&results).expect("results"));
        assert_eq!(rows.len(), 52);
        assert_eq!(rows[7]["externalId"], "r-7");
        assert_eq!(rows[50]["message"]["codes"], json!([]));
        assert_eq!(rows[51]["message"], Value::Null);
        let code = code(&rows[7]["message"]);
        let link = user.json(&["links", "get", &code]);
        assert_eq!(link["campaignId"], *id);
        assert_eq!(link["longUrl"], "https://shop.example.com/spring?m=7");
        // The repeated request has the same links.
        assert_eq!(*before.get_or_insert_with(|| code.clone()), code);
    }
    assert_eq!(user.lines(&["links", "list", "--all"]).len(), 50);
}
