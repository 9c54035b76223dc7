//! The service and the form of the output, for all commands of a group.

use hyper::Method;
use hyper::body::Bytes;
use serde_json::{Map, Value};

use super::show::{Table, cells, heads, parse};
use crate::columns::Columns;
use crate::output::print;
use crate::{Client, ClientArguments, Failure, Pager};

/// Sends requests and prints the answers: unchanged with `--json`, else as text.
pub(super) struct Session {
    pub(super) client: Client,
    pub(super) json: bool,
}

impl Session {
    pub(super) fn new(arguments: &ClientArguments) -> Result<Self, Failure> {
        Ok(Self {
            client: Client::new(arguments)?,
            json: arguments.json,
        })
    }

    /// Refuses `--quiet` beside `--json`.
    pub(super) fn either(&self, is_quiet: bool) -> Result<(), Failure> {
        if is_quiet && self.json {
            let problem = "--quiet and --json cannot be combined: choose one";
            return Err(Failure::Usage(problem.to_owned()));
        }
        Ok(())
    }

    /// Prints an answer.
    pub(super) fn tell(
        &self,
        answer: &Bytes,
        describe: impl FnOnce(&Value) -> String,
    ) -> Result<(), Failure> {
        let text = if self.json {
            // The unchanged answer, with one newline at its end.
            let text = String::from_utf8_lossy(answer);
            format!("{}\n", text.trim_end_matches('\n'))
        } else {
            describe(&parse(answer)?)
        };
        Ok(print(&text)?)
    }

    /// Reads a resource and prints it.
    pub(super) async fn get(
        &self,
        path: &str,
        describe: impl FnOnce(&Value) -> String,
    ) -> Result<(), Failure> {
        self.tell(&self.client.get(path).await?, describe)
    }

    /// Sends a request and prints the answer.
    pub(super) async fn send(
        &self,
        method: Method,
        path: &str,
        headers: &[(&'static str, String)],
        members: Option<Map<String, Value>>,
        describe: impl FnOnce(&Value) -> String,
    ) -> Result<(), Failure> {
        let body = members.map(Value::Object);
        let answer = self.client.send(method, path, headers, body.as_ref());
        self.tell(&answer.await?, describe)
    }

    /// Prints a listing, at most `limit` items of it: unchanged, one a line, or as a table. `right`
    /// are the columns of numbers; `amend` changes the cells of a row.
    pub(super) async fn list<const N: usize>(
        &self,
        path: &str,
        filters: Vec<(&'static str, String)>,
        limit: Option<u64>,
        table: &Table<N>,
        right: &'static [usize],
        amend: impl Fn(&Value, &mut [String; N]),
    ) -> Result<(), Failure> {
        let mut pager = Pager::new(&self.client, path, filters, limit);
        let mut columns = Columns::new(heads(table), right);
        while let Some(items) = pager.next().await? {
            let text = if self.json {
                items.iter().map(|item| format!("{item}\n")).collect()
            } else {
                let rows = items.iter().map(|item| {
                    let item = parse(item.get().as_bytes())?;
                    let mut row = cells(&item, table);
                    amend(&item, &mut row);
                    Ok(row)
                });
                columns.rows(&rows.collect::<Result<Vec<_>, Failure>>()?)
            };
            print(&text)?;
        }
        if let Some(limit) = limit.filter(|limit| !self.json && pager.has_more() && *limit > 0) {
            eprintln!("shortlink: these are the latest {limit}, and there are more: --limit");
        }
        Ok(())
    }
}
