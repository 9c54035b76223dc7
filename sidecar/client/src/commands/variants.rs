//! The results of A/B tests as text.

use serde_json::Value;

use super::show::{elements, member, number, percent};
use crate::columns::Columns;

/// The results of a link or a campaign.
pub(super) fn describe(results: &Value) -> String {
    let named = |name: String| match &*name {
        "" => "(default)".to_owned(),
        _ => name,
    };
    let rows = elements(results, "variants").iter().map(|it| {
        let bounds = ["low", "high"].map(|bound| percent(&it["interval"][bound]));
        [
            named(member(it, "/variant")),
            number(&it["clicks"]),
            percent(&it["share"]),
            number(&it["clicked"]),
            number(&it["converted"]),
            number(&it["conversions"]),
            percent(&it["conversionRate"]),
            bounds.join(" to "),
        ]
    });
    let head = [
        "VARIANT",
        "CLICKS",
        "SHARE",
        "LINKS CLICKED",
        "LINKS CONVERTED",
        "CONVERSIONS",
        "RATE",
        "95% INTERVAL",
    ];
    let rows: Vec<[String; 8]> = rows.collect();
    let table = Columns::new(head, &[1, 2, 3, 4, 5, 6, 7]).rows(&rows);
    let leader = results.get("leader").and_then(Value::as_str);
    let end = match (leader, results["decided"] == true) {
        (None, _) => "no variant leads".to_owned(),
        (Some(name), true) => format!("decided: {} leads", named(name.to_owned())),
        (Some(name), false) => {
            format!(
                "not decided: {} leads, perhaps by chance",
                named(name.to_owned())
            )
        }
    };
    format!("{table}\n{end}\n")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn results_are_a_table_and_a_verdict() {
        let results = json!({
            "variants": [
                {"variant": "", "clicks": 1_200, "share": 0.6, "clicked": 1, "converted": 1,
                 "conversions": 30, "conversionRate": 0.025, "interval": {"low": 0.0176, "high": 0.0354}},
                {"variant": "b", "clicks": 800, "share": 0.4, "clicked": 1, "converted": 0,
                 "conversions": 0, "conversionRate": 0.0, "interval": {"low": 0.0, "high": 0.0048}},
            ],
            "leader": "", "decided": true,
        });
        let text = describe(&results);
        let line = |place: usize| {
            let line = text.lines().nth(place).unwrap_or_default();
            line.split_whitespace().collect::<Vec<_>>().join(" ")
        };
        assert_eq!(line(1), "(default) 1,200 60.0% 1 1 30 2.5% 1.8% to 3.5%");
        assert_eq!(line(2), "b 800 40.0% 1 0 0 0.0% 0.0% to 0.5%");
        assert_eq!(line(4), "decided: (default) leads");
        let none = json!({"variants": [], "leader": null, "decided": false});
        assert!(describe(&none).ends_with("\nno variant leads\n"));
    }
}
