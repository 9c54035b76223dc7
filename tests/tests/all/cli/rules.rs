//! Rules on the command line: in options, in an explanation, and in files of links.

use super::*;

#[test]
fn rules_go_in_and_out_by_the_command_line() {
    let stack = Stack::start();
    let user = User::new(&stack);
    let run = |arguments: &[&str]| user.ok(arguments);
    let rules = json!([
        { "device": ["ios"], "variant": "app", "longUrl": "https://e.example/app" },
        { "language": ["de"], "longUrl": "https://e.example/de" },
    ]);
    let file = user.file("rules.json", &rules.to_string());
    let paused = "https://e.example/paused";
    let preview = json!({ "title": "Sale", "image": "https://e.example/a.png" });
    run(&[
        "links",
        "create",
        "https://e.example/",
        "--slug",
        "ruled",
        "--rules",
        path(&file),
        "--paused-target",
        paused,
        "--preview",
        &preview.to_string(),
    ]);
    let shown = run(&["links", "get", "ruled"]);
    assert!(shown.contains("\"variant\":\"app\""), "{shown}");
    assert!(shown.contains(paused), "{shown}");
    let explained = run(&[
        "links",
        "explain",
        "ruled",
        "--user-agent",
        "Windows NT",
        "--language",
        "de-AT",
        "--country",
        "DE",
    ]);
    for line in [
        "rule 0  not met: device  https://e.example/app",
        "rule 1  followed  https://e.example/de",
        "/rules/1/longUrl",
    ] {
        assert!(explained.contains(line), "{line}: {explained}");
    }
    let explained = run(&["links", "explain", "ruled", "--user-agent", "WhatsApp/2"]);
    let mut lines = explained.lines();
    let line = lines.find(|line| line.starts_with("is preview"));
    assert!(
        line.is_some_and(|line| line.ends_with("yes")),
        "{explained}"
    );
    // The file of links has what an import reads.
    let exported = run(&["links", "export", "--format", "csv"]);
    let quoted = |value: &Value| format!("\"{}\"", value.to_string().replace('"', "\"\""));
    for value in [&rules, &preview] {
        assert!(exported.contains(&quoted(value)), "{exported}");
    }
    let names = exported.lines().next().expect("names");
    let columns = ",rules,expiredTarget,pausedTarget,notYetTarget,preview";
    assert!(names.contains(columns), "{names}");
    let rows = [quoted(&rules), quoted(&preview)].join(",");
    let rows = format!("longUrl,customSlug,rules,preview\nhttps://e.example/,again,{rows}\n");
    let file = user.file("links.csv", &rows);
    run(&["links", "import", path(&file)]);
    let again = stack.api("GET", "/v1/links/again", None).json();
    assert_eq!((&again["rules"], &again["preview"]), (&rules, &preview));
    run(&["links", "change", "again", "--clear", "rules,preview"]);
    let again = stack.api("GET", "/v1/links/again", None).json();
    assert_eq!((again.get("rules"), again.get("preview")), (None, None));
    // A campaign has the same options, and a fault names its place.
    let template = "https://e.example/{member}";
    let inline = r#"[{"device":["fridge"],"longUrl":"https://e.example/"}]"#;
    let said = user.run(&["campaigns", "create", "Spring", template, "--rules", inline]);
    assert_eq!(said.code, Some(1), "{}", said.out);
    assert!(said.error.contains("/rules/0/device/0"), "{}", said.error);
    let inline = inline.replace("fridge", "ios");
    let made = run(&[
        "campaigns",
        "create",
        "Spring",
        template,
        "--rules",
        &inline,
    ]);
    assert!(made.contains("\"device\":[\"ios\"]"), "{made}");
}
