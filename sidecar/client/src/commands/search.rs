//! `shortlink search`

use serde_json::Value;
use url::form_urlencoded::Serializer;

use super::session::Session;
use super::show::{Table, cells, elements, heads};
use crate::Failure;
use crate::columns::Columns;

const LINKS: Table<5> = [
    ("FOUND BY", "/foundBy"),
    ("CODE", "/link/shortCode"),
    ("STATE", "/link/state"),
    ("CREATED", "/link/createdAt"),
    ("TARGET", "/link/longUrl"),
];

const CAMPAIGNS: Table<4> = [
    ("CAMPAIGN", "/id"),
    ("NAME", "/name"),
    ("STATE", "/state"),
    ("TARGET", "/longUrl"),
];

/// Shows the links and campaigns that a text finds.
pub(super) async fn run(session: &Session, text: &str) -> Result<(), Failure> {
    let mut query = Serializer::new(String::new());
    let query = query.append_pair("q", text).finish();
    session.get(&format!("/v1/search?{query}"), describe).await
}

fn describe(found: &Value) -> String {
    let tables = [
        table(elements(found, "links"), &LINKS),
        table(elements(found, "campaigns"), &CAMPAIGNS),
    ];
    let tables: Vec<String> = tables.into_iter().flatten().collect();
    match tables.is_empty() {
        true => "no link and no campaign was found\n".to_owned(),
        false => tables.join("\n"),
    }
}

/// A table of what was found, if anything was.
fn table<const N: usize>(found: &[Value], table: &Table<N>) -> Option<String> {
    let rows: Vec<[String; N]> = found.iter().map(|it| cells(it, table)).collect();
    (!rows.is_empty()).then(|| Columns::new(heads(table), &[]).rows(&rows))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::describe;

    #[test]
    fn links_and_campaigns_have_a_table_each() {
        let text = describe(&json!({
            "links": [{
                "foundBy": "longUrl",
                "link": {
                    "shortCode": "abc", "state": "live", "createdAt": "2026-01-01T00:00:00.5Z",
                    "longUrl": "https://example.com/",
                },
            }],
            "campaigns": [{
                "id": "1", "name": "Spring", "state": "live", "longUrl": "https://example.com/{a}",
            }],
        }));
        let rows: Vec<Vec<&str>> = text
            .lines()
            .map(|it| it.split_whitespace().collect())
            .collect();
        let link = [
            "longUrl",
            "abc",
            "live",
            "2026-01-01T00:00:00Z",
            "https://example.com/",
        ];
        assert_eq!(rows[1], link);
        assert_eq!(rows[4], ["1", "Spring", "live", "https://example.com/{a}"]);
        let nothing = describe(&json!({"links": [], "campaigns": []}));
        assert_eq!(nothing, "no link and no campaign was found\n");
    }
}
