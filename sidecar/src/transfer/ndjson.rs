//! Rows of JSON objects, one a line.

use std::collections::HashMap;
use std::io::{self, BufRead, Read};

use serde_json::{Map, Value};
use shortlink_api::csv_parser::Place;
use shortlink_api::kinds::Shape;

use super::columns::{COLUMNS, Cells, Column, Found, Names};
use super::csv::{Row, Rows};
use super::row::{MAX_ROW, Refusal};

/// The most names whose meanings are remembered, and which are listed.
const MAX_NAMES: usize = 1024;

/// A name that was looked up.
struct Known {
    meaning: Option<(Column, usize)>,
    /// A row had no better member for the column.
    is_read: bool,
    /// It was listed, as one that is read or as one that is not.
    listed: Option<bool>,
}

/// Rows of JSON objects.
pub struct NdjsonRows<R> {
    reader: R,
    names: Names,
    known: HashMap<String, Known>,
    line: u64,
    buffer: Vec<u8>,
}

impl<R: BufRead + Send> NdjsonRows<R> {
    /// Reads objects whose members are called by `names`.
    pub fn new(reader: R, names: Names) -> Self {
        Self {
            reader,
            names,
            known: HashMap::new(),
            line: 0,
            buffer: Vec::new(),
        }
    }

    /// Reads a line into the buffer, no further than is needed to know that it is too long; `false`
    /// at the end.
    fn read_line(&mut self) -> io::Result<bool> {
        self.buffer.clear();
        let most = MAX_ROW as u64 + 1;
        let read = self
            .reader
            .by_ref()
            .take(most)
            .read_until(b'\n', &mut self.buffer)?;
        if read > MAX_ROW && !self.buffer.ends_with(b"\n") {
            self.reader.skip_until(b'\n')?;
        }
        Ok(read > 0)
    }

    fn meaning(&mut self, name: &str) -> Option<(Column, usize)> {
        if let Some(known) = self.known.get(name) {
            return known.meaning;
        }
        let meaning = self.names.meaning(name);
        // Most rows have the same few names.
        if self.known.len() < MAX_NAMES {
            let known = Known {
                meaning,
                is_read: false,
                listed: None,
            };
            self.known.insert(name.to_owned(), known);
        }
        meaning
    }

    /// Notes that a name is read.
    fn note(&mut self, name: &str) {
        if let Some(known) = self.known.get_mut(name) {
            known.is_read = true;
        }
    }

    /// Fills cells from the object in the buffer.
    fn parse(&mut self, cells: &mut Cells) -> Result<(), Refusal> {
        if self.buffer.len() > MAX_ROW {
            return Err(Refusal::too_long(1));
        }
        // The parser's own words would name line 1 of 1.
        let object: Map<String, Value> = serde_json::from_slice(&self.buffer).map_err(|error| {
            let column = error.column();
            Refusal::unreadable(format!("is not a JSON object: column {column}"))
        })?;
        cells.clear();
        let mut best: [Option<(usize, &str, &Value)>; COLUMNS] = [None; COLUMNS];
        for (name, value) in &object {
            let Some((column, rank)) = self.meaning(name) else {
                continue;
            };
            if value.is_null() {
                self.note(name);
                continue;
            }
            let best = &mut best[column.place()];
            if best.is_none_or(|(standing, ..)| rank < standing) {
                *best = Some((rank, name, value));
            }
        }
        if best[Column::CODE.place()].is_some() {
            best[Column::SHORT_URL.place()] = None;
        }
        for (column, best) in Column::all().zip(best) {
            let Some((_, name, value)) = best else {
                continue;
            };
            self.note(name);
            match value {
                Value::String(text) => cells.set(column, text.as_bytes()),
                Value::Number(number) => cells.set(column, number.to_string().as_bytes()),
                Value::Bool(truth) if column.shape() == Shape::Truth => {
                    cells.set(column, truth.to_string().as_bytes());
                }
                Value::Array(_) if column.shape() == Shape::List => {
                    cells.set(column, value.to_string().as_bytes());
                }
                // That of another service, which describes a domain.
                Value::Object(_) if Some(column) == Column::setting("domain") => {}
                _ => {
                    let problem = format!("{name} is neither a text nor a number");
                    return Err(Refusal::unreadable(problem));
                }
            }
        }
        Ok(())
    }
}

impl<R: BufRead + Send> Rows for NdjsonRows<R> {
    fn next(&mut self, cells: &mut Cells) -> io::Result<Option<Row>> {
        while self.read_line()? {
            self.line += 1;
            if !self.buffer.trim_ascii().is_empty() {
                let (line, lines) = (self.line, 1);
                return Ok(Some((Place { line, lines }, self.parse(cells))));
            }
        }
        Ok(None)
    }

    fn found(&mut self) -> Found {
        let mut found = Found::default();
        for (name, known) in &mut self.known {
            if known.listed.replace(known.is_read) == Some(known.is_read) {
                continue;
            }
            match known.meaning.filter(|_| known.is_read) {
                Some((column, _)) => found.read.push((name.clone(), column)),
                None => found.ignored.push(name.clone()),
            }
        }
        found
            .read
            .sort_unstable_by_key(|(_, column)| column.place());
        found.ignored.sort_unstable();
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &[u8], assigned: &[&str]) -> Vec<String> {
        let assigned = assigned.iter().map(|it| it.parse().expect("an assignment"));
        let names = Names::new(assigned.collect());
        let mut rows = NdjsonRows::new(io::BufReader::with_capacity(5, text), names);
        let mut cells = Cells::default();
        let mut found = Vec::new();
        loop {
            match rows.next(&mut cells).expect("a slice") {
                Some((Place { line, .. }, Ok(()))) => {
                    let text = |column| {
                        String::from_utf8_lossy(cells.get(column).unwrap_or_default()).into_owned()
                    };
                    let columns = [Column::CODE, Column::URL, Column::CREATED];
                    found.push(format!("{line} {}", columns.map(text).join(" ")));
                }
                Some((Place { line, .. }, Err(refusal))) => {
                    found.push(format!("{line}: {}", refusal.problem));
                }
                None => return found,
            }
        }
    }

    #[test]
    fn objects_are_read_line_by_line() {
        let text = b"{\"code\":\"a\",\"longUrl\":\"b\",\"created\":1622550600}\r\n\n \n\
            {\"url\":\"c\",\"long_url\":\"d\",\"slug\":\"e\",\"x\":{\"y\":[]}}\n\
            {\"shortCode\":\"f\",\"longUrl\":null,\"url\":\"g\",\"created\":null}";
        assert_eq!(read(text, &[]), ["1 a b 1622550600", "4 e d ", "5 f g "]);
        let text = b"{\"id\":7,\"dest\":\"b\",\"code\":\"z\"}\n";
        assert_eq!(read(text, &["code=id", "url=dest"]), ["1 7 b "]);
    }

    #[test]
    fn members_are_listed_once_and_again_when_a_row_reads_them() {
        let text = b"{\"code\":\"a\",\"longUrl\":\"b\",\"url\":\"c\",\"x\":1,\"password\":null}\n\
            {\"code\":\"a\",\"url\":\"c\"}\n{\"code\":\"a\",\"url\":\"c\"}";
        let mut rows = NdjsonRows::new(&text[..], Names::default());
        let mut lists = Vec::new();
        while rows.next(&mut Cells::default()).expect("a slice").is_some() {
            lists.push(rows.found().lines("f").collect::<Vec<_>>());
        }
        assert_eq!(
            lists,
            [
                vec![
                    "f: columns read: code, longUrl (url), password",
                    "f: columns ignored: url, x"
                ],
                vec!["f: columns read: url"],
                vec![],
            ]
        );
    }

    #[test]
    fn what_is_not_an_object_is_refused_and_the_next_is_read() {
        let good = "{\"code\":\"a\",\"url\":\"b\"}";
        for bad in [
            "[]",
            "{",
            "{\"code\":\"a\"",
            "null",
            "code,url",
            "{\"code\":\"\\ud800\"}",
            "{\"code\":[\"a\"]}",
            "{\"code\":true}",
            "\0",
            "{} {}",
        ] {
            let found = read(format!("{bad}\n{good}\n").as_bytes(), &[]);
            assert_eq!(found.len(), 2, "{bad}: {found:?}");
            assert!(found[0].starts_with("1: "), "{bad}: {found:?}");
            assert_eq!(found[1], "2 a b ");
        }
        let wrong_utf8 = [b"{\"code\":\"\xff\"}\n", good.as_bytes()].concat();
        assert_eq!(read(&wrong_utf8, &[]).len(), 2);
        let deep = format!("{}\n{good}", "[".repeat(100_000));
        assert_eq!(read(deep.as_bytes(), &[])[1], "2 a b ");
        let long = format!("{{\"url\":\"{}\"}}\n{good}", "x".repeat(10 << 20));
        let found = read(long.as_bytes(), &[]);
        assert!(found[0].starts_with("1: has more than"), "{}", found[0]);
        assert_eq!(found[1], "2 a b ");
    }
}
