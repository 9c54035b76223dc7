//! `shortlink conversions`

use serde_json::json;
use shortlink_tests::stack::{Stack, text};

use super::{User, path};

#[test]
fn conversions_are_reported_one_by_one_and_by_a_file() {
    let stack = Stack::start();
    let user = User::new(&stack);
    let target = "https://shop.example.com/p?m={member}";
    let campaign = user.json(&["campaigns", "create", "Spring", target]);
    let id = text(&campaign, "id");
    for n in 0..3 {
        stack.create(&json!({
            "campaignId": id, "externalId": format!("m-{n}"), "customSlug": format!("slug{n}"),
            "parameters": {"member": n.to_string()},
        }));
    }
    let key = stack.sidecar.make_key(&["conversions:write", "stats:read"]);
    let user = User { key, ..user };
    let one = ["conversions", "create", "order-1", "--external-id", "m-0"];
    let with_value = [&one[..], &["--value", "49.90", "--currency", "EUR"]].concat();
    assert_eq!(user.ok(&with_value), "counted for the link slug0\n");
    assert_eq!(user.ok(&with_value), "counted before for the link slug0\n");
    let refused = user.run(&one);
    assert_eq!(refused.code, Some(1));
    assert!(
        refused.error.contains("another conversion"),
        "{}",
        refused.error
    );
    let file = user.home.join("conversions.csv");
    let rows = "conversionId,externalId,value,currency\no-2,m-1,0.1,EUR\no-3,m-2,,\no-4,m-9,,\n";
    std::fs::write(&file, rows).expect("a file");
    let import = ["conversions", "import", path(&file), "--campaign", &id];
    let imported = user.run(&import);
    assert_eq!(imported.code, Some(1));
    assert_eq!(imported.out, "3 rows: 2 conversions counted, 1 failed\n");
    assert!(imported.error.contains("line 4"), "{}", imported.error);
    let again = user.run(&import);
    assert_eq!(
        again.out,
        "3 rows: 0 conversions counted, 2 counted before, 1 failed\n"
    );
    let counted = user.json(&["conversions", "campaign", &id]);
    let values = json!([{"currency": "EUR", "conversions": 2, "value": "50"}]);
    assert_eq!(
        (&counted["converted"], &counted["values"]),
        (&json!(3), &values)
    );
    let of_link = user.ok(&["conversions", "link", "slug0"]);
    assert!(of_link.contains("49.9"), "{of_link}");
    let refund = ["conversions", "refund", "order-1", "--code", "slug0"];
    let some = [&refund[..], &["--amount", "9.9"]].concat();
    for (refund, expected) in [
        (&some[..], "counted for the link slug0\n"),
        (&refund, "counted for the link slug0\n"),
        (&some, "counted before for the link slug0\n"),
    ] {
        assert_eq!(user.ok(refund), expected, "{refund:?}");
    }
    let counted = user.json(&["conversions", "campaign", &id]);
    assert_eq!(counted["converted"], 2);
}
