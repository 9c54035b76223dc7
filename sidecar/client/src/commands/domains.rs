//! `shortlink domains list`

use std::process::ExitCode;

use serde_json::Value;

use super::boxed;
use super::session::Session;
use super::show::{elements, member, plain, second};
use crate::columns::Columns;
use crate::{ClientArguments, Failure};

/// Shows the short domains as each nginx has them.
#[boxed]
pub async fn run(client: &ClientArguments) -> ExitCode {
    let listed = list(client).await;
    listed.map_or_else(|failure| failure.tell(), |()| ExitCode::SUCCESS)
}

async fn list(client: &ClientArguments) -> Result<(), Failure> {
    Session::new(client)?.get("/v1/domains", describe).await
}

fn describe(answer: &Value) -> String {
    let mut rows: Vec<[String; 5]> = Vec::new();
    let mut falls = String::new();
    for domain in elements(answer, "domains") {
        let name = plain(&member(domain, "/domain"));
        let visits = member(domain, "/visits");
        for announced in elements(domain, "announced") {
            rows.push([
                name.clone(),
                plain(&member(announced, "/node")),
                member(announced, "/state"),
                visits.clone(),
                plain(&member(announced, "/baseUrl")),
            ]);
        }
        // Visited, and in no table any more.
        if elements(domain, "announced").is_empty() {
            let [node, state, base] = ["-", "-", "-"].map(str::to_owned);
            rows.push([name.clone(), node, state, visits, base]);
        }
        let fall = domain.get("fall").filter(|fall| !fall.is_null());
        for fall in fall.into_iter().chain(elements(domain, "networks")) {
            let number = |member: &str| fall.get(member).and_then(Value::as_f64).unwrap_or(0.0);
            let at = second(&member(fall, "/at"));
            let (before, since) = (number("before"), number("since"));
            let (of, by) = match fall.get("network").and_then(Value::as_str).map(plain) {
                Some(network) => (format!("{name} from {network}"), " by this network"),
                None => (name.clone(), ""),
            };
            falls.push_str(&format!(
                "! {of}: fell from {before:.0} to {since:.0} visits a minute at {at}: it may be blocked{by}\n"
            ));
        }
    }
    let heads = ["DOMAIN", "NGINX", "STATE", "VISITS/H", "SHORT URLS"];
    Columns::new(heads, &[3]).rows(&rows) + &falls
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::describe;

    #[test]
    fn each_nginx_has_a_line_and_a_fall_is_told() {
        let announced =
            |node: &str, state: &str| json!({"node": node, "state": state, "baseUrl": null});
        let text = describe(&json!({"domains": [
            {"domain": "s1.example", "visits": 12, "announced": [
                announced("one", "active"), announced("two", "serving"),
            ], "fall": {"at": "2026-01-02T03:04:05Z", "before": 120.4, "since": 3.0}},
            {"domain": "gone.example", "visits": 1, "announced": [], "fall": null, "networks": [
                {"network": "Alpha", "at": "2026-01-02T03:04:05Z", "before": 150.2, "since": 1.0},
            ]},
        ]}));
        for part in [
            "s1.example    one    active         12",
            "s1.example    two    serving        12",
            "gone.example  -      -               1",
            "! s1.example: fell from 120 to 3 visits a minute at 2026-01-02T03:04:05Z",
            "! gone.example from Alpha: fell from 150 to 1 visits a minute at 2026-01-02T03:04:05Z",
        ] {
            assert!(text.contains(part), "{part}:\n{text}");
        }
    }
}
