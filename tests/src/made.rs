//! Links as the API returns them, by the million: read out of its answers as text, since making a
//! tree of values of each would take most of a test's time.

use std::collections::HashMap;

use crate::http::{Connection, request};
use crate::visitor::Visitor;

/// A link that the API has returned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Made {
    /// Its code.
    pub code: String,
    /// Its target.
    pub target: String,
}

/// Finds the links in an answer, in their order. Their targets must have nothing that JSON
/// escapes.
///
/// # Panics
/// When a link has no target.
pub fn links_in(text: &str) -> impl Iterator<Item = Made> {
    text.split("\"shortCode\":\"").skip(1).map(|rest| Made {
        code: up_to_quote(rest).to_owned(),
        target: member(rest, "longUrl").expect("a target").to_owned(),
    })
}

/// The text that the first member of this name holds.
fn member<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let name = format!("\"{name}\":\"");
    let at = text.find(&name)? + name.len();
    Some(up_to_quote(&text[at..]))
}

fn up_to_quote(text: &str) -> &str {
    text.split('"').next().unwrap_or_default()
}

/// Hands every link that the API lists to `each`.
///
/// # Panics
/// When the API does not answer.
pub fn list(port: u16, key: &str, mut each: impl FnMut(Made)) {
    let mut visitor = Visitor::new(port);
    let mut cursor = String::new();
    loop {
        let path = format!("/v1/links?limit=1000{cursor}");
        let answer = visitor.get(&path, &[("X-Api-Key", key)]);
        let text = String::from_utf8(answer.body).expect("text");
        assert_eq!(answer.status, 200, "{text}");
        links_in(&text).for_each(&mut each);
        match member(&text, "nextCursor") {
            Some(next) => cursor = format!("&cursor={next}"),
            None => return,
        }
    }
}

/// Every link that the API lists: where each code leads.
///
/// # Panics
/// When the API does not answer, or lists a code twice.
pub fn listed(port: u16, key: &str) -> HashMap<String, String> {
    let mut all = HashMap::new();
    list(port, key, |Made { code, target }| {
        let before = all.insert(code, target);
        assert_eq!(before, None, "a code is listed twice");
    });
    all
}

/// The results of a batch that have arrived.
#[derive(Debug)]
pub struct Results {
    /// The links that were made, by the index of their row.
    pub made: Vec<(usize, Made)>,
    /// The number of them that were not yet in Redis.
    pub late: usize,
    /// The results of rows without a link, as they were received.
    pub refused: Vec<String>,
}

/// Asks for links to these targets with one request, and returns the results that arrive whole,
/// however it ends: fewer than targets when the server is killed.
///
/// # Panics
/// When what arrives is not the answer to a batch.
pub fn make_batch(port: u16, headers: &[(&str, &str)], targets: &[String]) -> Results {
    let rows: Vec<String> = targets
        .iter()
        .map(|target| format!("{{\"longUrl\":\"{target}\"}}\n"))
        .collect();
    let mut all = vec![
        ("Content-Type", "application/x-ndjson"),
        ("Connection", "close"),
    ];
    all.extend_from_slice(headers);
    let bytes = request("POST", "/v1/links/batch", &all, rows.concat().as_bytes());
    // To HTTP/1.0 the answer comes as it is, without the marks of chunks.
    let text = String::from_utf8(bytes).expect("text");
    let text = text.replacen("HTTP/1.1", "HTTP/1.0", 1);
    let arrived = Connection::open(port).and_then(|mut connection| {
        connection.send(text.as_bytes())?;
        Ok(connection.receive_what_comes())
    });
    read_results(&String::from_utf8(arrived.unwrap_or_default()).expect("text"))
}

fn read_results(answer: &str) -> Results {
    let mut results = Results {
        made: Vec::new(),
        late: 0,
        refused: Vec::new(),
    };
    let Some((head, body)) = answer.split_once("\r\n\r\n") else {
        return results;
    };
    let status = head.split(' ').nth(1);
    assert_eq!(status, Some("200"), "{answer}");
    for line in body.split_inclusive('\n') {
        // The last may be cut off.
        let Some(line) = line.strip_suffix('\n') else {
            break;
        };
        if line.contains("\"status\":201") {
            let index = line.strip_prefix("{\"index\":").and_then(|rest| {
                let digits = rest.split(',').next()?;
                digits.parse().ok()
            });
            let made = links_in(line).next().expect("a link");
            results.made.push((index.expect("an index"), made));
            results.late += usize::from(line.contains("\"published\":false"));
        } else {
            results.refused.push(line.to_owned());
        }
    }
    results
}
