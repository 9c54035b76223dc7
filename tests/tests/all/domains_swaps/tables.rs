//! Tables of domains, one after the other, and which of them may be in force at a moment.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Number of tables ahead in which a visited name must be listed: a name that is not listed gets no
/// answer, which could be taken for a connection that a reload has closed.
const AHEAD: usize = 4;

/// The state of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Active,
    Serving,
    Retired,
}

/// The content of `domains.conf`.
#[derive(Clone, Debug)]
pub(super) struct Table {
    names: Vec<(String, State)>,
}

impl Table {
    /// The whole file.
    pub(super) fn text(&self) -> String {
        let lines = self.names.iter().map(|(name, state)| match state {
            State::Active => format!("    {name} active{};\n", parameters(name)),
            State::Serving => format!("    {name} serving;\n"),
            State::Retired => format!("    {name} retired;\n"),
        });
        format!("shortlink_domains {{\n{}}}\n", lines.collect::<String>())
    }

    /// The state of a name; `None` when it is not listed.
    pub(super) fn state(&self, name: &str) -> Option<State> {
        let found = self.names.iter().find(|(listed, _)| listed == name)?;
        Some(found.1)
    }

    /// Returns the short URL of a code.
    pub(super) fn short_url(&self, code: &str) -> String {
        let active = |(_, state): &&(String, State)| *state == State::Active;
        let (name, _) = self.names.iter().find(active).expect("an active name");
        if parameters(name).is_empty() {
            format!("https://{name}/{code}")
        } else {
            format!("http://{name}:8443/{code}")
        }
    }

    /// The names that are listed.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.names.iter().map(|(name, _)| name.as_str())
    }
}

/// Some names are reached in another way.
fn parameters(name: &str) -> &'static str {
    if name.contains('3') {
        " scheme=http port=8443"
    } else {
        ""
    }
}

/// So many changes of the first table, which is there, too: in turn a new name becomes the active
/// one, one that serves does, and names are retired, come back, or are taken out.
pub(super) fn tables(changes: usize) -> Vec<Table> {
    let name = |number: usize| format!("d{number}.example.net");
    let mut active = name(0);
    let mut serving = VecDeque::from([name(1), name(2)]);
    let mut retired = VecDeque::from([name(3)]);
    let mut next = 4;
    let mut tables = Vec::new();
    for change in 0..=changes {
        match change % 6 {
            _ if change == 0 => {}
            1 | 4 => {
                serving.push_back(std::mem::replace(&mut active, name(next)));
                next += 1;
            }
            2 | 5 => {
                let first = serving.pop_front().expect("a name");
                serving.push_back(std::mem::replace(&mut active, first));
            }
            3 => {
                serving.extend(retired.pop_front());
                retired.extend(serving.pop_front());
            }
            _ => {
                retired.extend(serving.pop_front());
                retired.extend(serving.pop_front());
                while retired.len() > 2 {
                    retired.pop_front();
                }
            }
        }
        let listed = |names: &VecDeque<String>, state| -> Vec<_> {
            names.iter().map(|name| (name.clone(), state)).collect()
        };
        let mut names = vec![(active.clone(), State::Active)];
        names.extend(listed(&serving, State::Serving));
        names.extend(listed(&retired, State::Retired));
        tables.push(Table { names });
    }
    tables
}

/// The tables and how far they are in force.
pub(super) struct Course {
    tables: Vec<Table>,
    /// The latest that nginx has begun to load.
    begun: AtomicUsize,
    /// The latest that has no worker of an older one beside it.
    done: AtomicUsize,
}

impl Course {
    pub(super) fn new(tables: Vec<Table>) -> Self {
        Self {
            tables,
            begun: AtomicUsize::new(0),
            done: AtomicUsize::new(0),
        }
    }

    pub(super) fn table(&self, number: usize) -> &Table {
        &self.tables[number]
    }

    /// The oldest table that may still be in force.
    pub(super) fn oldest(&self) -> usize {
        self.done.load(Ordering::SeqCst)
    }

    /// Notes that nginx is about to load a table.
    pub(super) fn begin(&self, number: usize) {
        self.begun.store(number, Ordering::SeqCst);
    }

    /// No worker of an older table is left.
    pub(super) fn finish(&self, number: usize) {
        self.done.store(number, Ordering::SeqCst);
    }

    /// The names that may be visited from a moment on at which this table was the oldest.
    pub(super) fn visitable(&self, oldest: usize) -> Vec<&str> {
        let next = &self.tables[oldest..self.tables.len().min(oldest + AHEAD + 1)];
        let stays = |name: &&str| next.iter().all(|table| table.state(name).is_some());
        self.tables[oldest].names().filter(stays).collect()
    }

    /// The states that a name may have had from a moment on at which this table was the oldest.
    pub(super) fn possible(&self, name: &str, oldest: usize) -> Vec<State> {
        let latest = self.begun.load(Ordering::SeqCst);
        assert!(latest <= oldest + AHEAD, "reloads outrun a request");
        let tables = &self.tables[oldest..=latest];
        tables
            .iter()
            .filter_map(|table| table.state(name))
            .collect()
    }
}
