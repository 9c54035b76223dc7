//! A client of the live feed of visits.

use std::collections::VecDeque;
use std::io;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::http::{Connection, Response, request};
use crate::wait::SOON;

/// An event of the feed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FeedEvent {
    /// Its name.
    pub name: String,
    /// Its id; empty without one.
    pub id: String,
    /// Its data.
    pub data: Value,
}

/// An open feed.
#[derive(Debug)]
pub struct Feed {
    connection: Connection,
    /// The answer without its body.
    pub head: Response,
    /// Text that was received and is no whole event yet.
    text: String,
    events: VecDeque<FeedEvent>,
    /// Number of comments that were received.
    pub comments: usize,
    is_over: bool,
}

impl Feed {
    /// Opens a feed at a port of the API, without waiting until visits are read. `query` follows
    /// the path, and `last` is the id of the last event that was seen.
    ///
    /// # Errors
    /// With the answer when it is no feed.
    ///
    /// # Panics
    /// When there is no answer.
    pub fn try_open(
        port: u16,
        key: &str,
        query: &str,
        last: Option<&str>,
    ) -> Result<Self, Response> {
        let mut headers = vec![("X-Api-Key", key)];
        headers.extend(last.map(|last| ("Last-Event-ID", last)));
        let path = format!("/v1/visits/live{query}");
        let mut connection = Connection::open(port).expect("a connection");
        let sent = connection.send(&request("GET", &path, &headers, b""));
        sent.expect("a connection");
        let head = connection.receive_head().expect("an answer");
        let head = head.expect("an answer");
        if head.status != 200 {
            return Err(head);
        }
        Ok(Self {
            connection,
            head,
            text: String::new(),
            events: VecDeque::new(),
            comments: 0,
            is_over: false,
        })
    }

    /// Opens a feed and waits until visits are read.
    ///
    /// # Panics
    /// When it does not begin.
    pub fn open(port: u16, key: &str, query: &str, last: Option<&str>) -> Self {
        let feed = Self::try_open(port, key, query, last);
        let mut feed = feed.unwrap_or_else(|answer| panic!("no feed: {answer:?}"));
        // The latter when Redis did not answer in time at first.
        while !matches!(&*feed.event().name, "begun" | "resumed") {}
        feed
    }

    /// Waits for the next event; `None` at the end of the feed.
    ///
    /// # Panics
    /// When nothing comes within [`SOON`], or the connection breaks.
    pub fn next_event(&mut self) -> Option<FeedEvent> {
        self.within(SOON).expect("an event")
    }

    /// Waits for the next event.
    ///
    /// # Panics
    /// As [`Feed::next_event`], and when the feed ends.
    pub fn event(&mut self) -> FeedEvent {
        self.next_event().expect("the feed goes on")
    }

    /// Waits for an event with a name, and skips others.
    ///
    /// # Panics
    /// As [`Feed::event`].
    pub fn named(&mut self, name: &str) -> FeedEvent {
        loop {
            let event = self.event();
            if event.name == name {
                return event;
            }
        }
    }

    /// Waits for the next event and leaves out that Redis did not answer in time, which may be on
    /// a machine that runs many tests.
    ///
    /// # Panics
    /// As [`Feed::event`].
    pub fn steady_event(&mut self) -> FeedEvent {
        loop {
            let event = self.event();
            if !matches!(&*event.name, "interrupted" | "resumed") {
                return event;
            }
        }
    }

    /// Waits for a visit, which must be what comes next.
    ///
    /// # Panics
    /// As [`Feed::steady_event`], and when something else comes.
    pub fn visit(&mut self) -> FeedEvent {
        let event = self.steady_event();
        assert_eq!(event.name, "visit", "{event:?}");
        event
    }

    /// Waits for the next event for so long. `Ok(None)` is the end.
    fn within(&mut self, limit: Duration) -> io::Result<Option<FeedEvent>> {
        let deadline = Instant::now() + limit;
        loop {
            if let Some(event) = self.events.pop_front() {
                return Ok(Some(event));
            }
            if self.is_over {
                return Ok(None);
            }
            match self.connection.receive_chunk() {
                Ok(chunk) => self.take(&chunk),
                Err(error) if is_silence(&error) && Instant::now() < deadline => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Waits for a comment and skips events.
    ///
    /// # Panics
    /// When none comes within `limit`, or the feed ends.
    pub fn comment(&mut self, limit: Duration) {
        let deadline = Instant::now() + limit;
        let seen = self.comments;
        while self.comments == seen {
            assert!(!self.is_over && Instant::now() < deadline, "no comment");
            match self.connection.receive_chunk() {
                Ok(chunk) => self.take(&chunk),
                Err(error) if is_silence(&error) => {}
                Err(error) => panic!("{error}"),
            }
        }
    }

    fn take(&mut self, chunk: &[u8]) {
        self.is_over = chunk.is_empty();
        self.text += std::str::from_utf8(chunk).expect("text");
        while let Some((block, rest)) = self.text.split_once("\n\n") {
            let mut event = FeedEvent {
                name: String::new(),
                id: String::new(),
                data: Value::Null,
            };
            for line in block.lines() {
                match line.split_once(": ").expect("a field") {
                    ("event", name) => event.name = name.to_owned(),
                    ("id", id) => event.id = id.to_owned(),
                    ("data", data) => event.data = serde_json::from_str(data).expect("JSON"),
                    ("retry", _) => {}
                    ("", _comment) => self.comments += 1,
                    other => panic!("{other:?}"),
                }
            }
            if !event.name.is_empty() {
                self.events.push_back(event);
            }
            self.text = rest.to_owned();
        }
    }
}

/// Returns whether an error is only the silence of a connection that is in order.
fn is_silence(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut
    )
}
