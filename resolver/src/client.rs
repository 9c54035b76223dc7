//! Requests for records, pipelined on one connection to Redis.
//!
//! The client decides when to connect, what to send, who is answered and when to give up; its
//! owner has the socket and the clock. One turn of the owner's loop looks like this:
//!
//! - a request came: [`Client::submit`], and flush soon (all that came in this turn leave in one
//!   write: [`Client::output`], [`Client::wrote`]);
//! - the socket has bytes: read into [`Client::input_space`], tell [`Client::received`], then take
//!   [`Client::next_completion`] until there is none;
//! - time went by: [`Client::tick`] says what to do, [`Client::next_expired`] who waited too long,
//!   [`Client::next_deadline`] when to look again;
//! - the connection was lost: [`Client::disconnected`], then take the completions: all that
//!   waited are told to go to the fallback.
//!
//! Completions are handed out one at a time, so that the owner holds no borrow of the client
//! while it answers a request: answering can submit the next one of the same connection.

use std::fmt;

use vocabulary::{Code, KeyPrefix};

use crate::answer::{Answer, MissReason, answer_of_reply};
use crate::queue::{Queue, Ticket};
use crate::resp::{Decoded, Decoder, GetEncoder, INPUT_LENGTH, ProtocolError, Reply, push_command};

/// The most replies that may be owed at once; beyond it requests go to the fallback. With a time
/// budget of 50 ms this stands for over a million requests a second.
const MAX_OWED: usize = 1 << 16;

/// The first wait before a connection is tried again, in milliseconds; it doubles from there.
const FIRST_BACKOFF: u64 = 50;

/// The longest wait before a connection is tried again, in milliseconds.
const LONGEST_BACKOFF: u64 = 2000;

/// A connection lost sooner than this after it was ready counts as a failed attempt, in
/// milliseconds, so that a Redis that hangs up at once is not dialled in a loop.
const SETTLED_AFTER: u64 = 1000;

/// How long Redis may take to accept a connection and shake hands, in milliseconds.
const CONNECT_TIMEOUT: u64 = 1000;

/// How a client talks to Redis.
#[derive(Clone, Debug)]
pub struct ClientSettings {
    /// What the keys begin with.
    pub prefix: KeyPrefix,
    /// The number of the database.
    pub database: u16,
    /// How long a request waits for Redis, in milliseconds, at least 1.
    pub budget: u64,
}

impl ClientSettings {
    /// The longest that a time budget may be, in milliseconds.
    pub const LONGEST_BUDGET: u64 = 10_000;

    /// How long a reply may be owed before the connection is given up, in milliseconds: some
    /// requests may be slow, but when the line has not moved for several budgets, Redis hangs and
    /// every further request would only wait its budget for nothing.
    fn stall_limit(&self) -> u64 {
        (self.budget * 4).max(200)
    }
}

impl Default for ClientSettings {
    fn default() -> Self {
        Self {
            prefix: KeyPrefix::default(),
            database: 0,
            budget: 50,
        }
    }
}

/// Redis can't be asked now: the request goes to the fallback at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unavailable;

/// A request that is done, with what was handed over when it was submitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion<'a, T> {
    /// The request.
    pub token: T,
    /// Its answer; it lives in the client's input until more is read.
    pub answer: Answer<'a>,
}

/// Why a connection must be given up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LinkError {
    /// What arrived is not what Redis sends.
    Protocol(&'static str),
    /// Redis refused the handshake, with this text.
    Refused(String),
    /// Redis did not accept the connection or shake hands in time.
    ConnectTimeout,
    /// Redis has owed a reply for too long.
    Stalled,
}

impl fmt::Display for LinkError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Protocol(what) => write!(f, "it does not speak as Redis does: {what}"),
            Self::Refused(text) => {
                write!(
                    f,
                    "it refused the handshake (Redis 6 or newer is needed): {text}"
                )
            }
            Self::ConnectTimeout => f.write_str("it did not answer the handshake in time"),
            Self::Stalled => f.write_str("it does not answer any more"),
        }
    }
}

impl std::error::Error for LinkError {}

impl From<ProtocolError> for LinkError {
    fn from(ProtocolError(what): ProtocolError) -> Self {
        Self::Protocol(what)
    }
}

/// What is to be done because time went by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Tick {
    /// Nothing.
    Idle,
    /// Open a connection and tell [`Client::connecting`].
    Connect,
    /// Close the connection and tell [`Client::disconnected`].
    Disconnect(LinkError),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// There is no connection; the next is due at `retry_at`.
    Disconnected { retry_at: u64 },
    /// The owner opens a connection.
    Connecting { deadline: u64 },
    /// The handshake is sent; so many replies to it are owed before those to requests.
    Handshaking { deadline: u64, owed: u8 },
    /// Requests are answered.
    Ready { since: u64 },
}

/// The client. `T` is what the owner knows a request by.
#[derive(Debug)]
pub struct Client<T> {
    settings: ClientSettings,
    encoder: GetEncoder,
    state: State,
    /// Attempts that failed since a connection last held. While it is not 0, requests are not made
    /// to wait for a connection that may never come.
    failures: u32,
    /// State of the generator that spreads reconnects of many workers.
    jitter: u64,
    queue: Queue<T>,
    /// Bytes to be written; those before `written` are.
    output: Vec<u8>,
    written: usize,
    /// Bytes that were read; those of `filled` are still to be decoded.
    input: Box<[u8]>,
    filled: std::ops::Range<usize>,
    decoder: Decoder,
}

impl<T> Client<T> {
    /// Makes a client that wants to connect at once. `seed` spreads the reconnects of clients
    /// that lose the same Redis. All times are in milliseconds of one clock that never goes
    /// back.
    pub fn new(settings: ClientSettings, now: u64, seed: u64) -> Self {
        Self {
            encoder: GetEncoder::new(&settings.prefix),
            settings,
            state: State::Disconnected { retry_at: now },
            failures: 0,
            jitter: seed | 1,
            queue: Queue::default(),
            output: Vec::new(),
            written: 0,
            input: vec![0; INPUT_LENGTH].into_boxed_slice(),
            filled: 0..0,
            decoder: Decoder::default(),
        }
    }

    /// Asks for a link's record. The owner flushes [`Client::output`] soon after.
    ///
    /// # Errors
    /// When Redis can't be asked now.
    #[inline]
    pub fn submit(&mut self, code: &Code, token: T, now: u64) -> Result<Ticket, Unavailable> {
        // While nothing has failed yet, the first requests wait for the connection that is being
        // made: it is there within a fraction of the budget, and a start or reload would
        // otherwise send a burst to the fallback.
        let may_wait = matches!(self.state, State::Ready { .. }) || self.failures == 0;
        if !may_wait || self.queue.len() >= MAX_OWED {
            return Err(Unavailable);
        }
        self.encoder.push_get(code, &mut self.output);
        Ok(self.queue.push(token, now))
    }

    /// Makes a request give up: its token will not be handed out any more.
    pub fn cancel(&mut self, ticket: Ticket) {
        self.queue.cancel(ticket);
    }

    /// What is to be written to the connection now.
    pub fn output(&self) -> &[u8] {
        match self.state {
            State::Handshaking { .. } | State::Ready { .. } => &self.output[self.written..],
            State::Disconnected { .. } | State::Connecting { .. } => &[],
        }
    }

    /// Says how much of [`Client::output`] was written.
    pub fn wrote(&mut self, count: usize) {
        self.written += count;
        if self.written >= self.output.len() {
            self.output.clear();
            self.written = 0;
        }
    }

    /// Where the next bytes are to be read to; never empty after all completions were taken.
    pub fn input_space(&mut self) -> &mut [u8] {
        // Move what is left to the front: mostly nothing, or the beginning of one reply.
        if self.filled.start > 0 {
            self.input.copy_within(self.filled.clone(), 0);
            self.filled = 0..self.filled.len();
        }
        &mut self.input[self.filled.end..]
    }

    /// Says how many bytes were read into [`Client::input_space`].
    pub fn received(&mut self, count: usize) {
        self.filled.end = (self.filled.end + count).min(self.input.len());
    }

    /// Takes the next request that is done; `now` is in milliseconds, `unix_time` in seconds
    /// since 1970.
    ///
    /// # Errors
    /// When the connection must be given up.
    #[inline]
    pub fn next_completion(
        &mut self,
        now: u64,
        unix_time: u64,
    ) -> Result<Option<Completion<'_, T>>, LinkError> {
        if let Some(token) = self.queue.pop_lost() {
            let answer = Answer::Miss(MissReason::Unavailable);
            return Ok(Some(Completion { token, answer }));
        }
        loop {
            let unread = &self.input[self.filled.start..self.filled.end];
            let (reply, used) = match self.decoder.decode(unread)? {
                Decoded::Incomplete => return Ok(None),
                Decoded::Skip(used) | Decoded::Reply(Reply::Push(_), used) => {
                    self.filled.start += used;
                    continue;
                }
                Decoded::Reply(reply, used) => (reply, used),
            };
            self.filled.start += used;
            match self.state {
                State::Ready { .. } => {}
                State::Handshaking { deadline, owed } => {
                    if let Reply::Error(text) = reply {
                        return Err(LinkError::Refused(
                            String::from_utf8_lossy(text).into_owned(),
                        ));
                    }
                    self.state = match owed {
                        1 => State::Ready { since: now },
                        _ => State::Handshaking {
                            deadline,
                            owed: owed - 1,
                        },
                    };
                    self.failures = 0;
                    continue;
                }
                State::Disconnected { .. } | State::Connecting { .. } => {
                    return Err(LinkError::Protocol("a reply before the handshake"));
                }
            }
            match self.queue.pop() {
                None => return Err(LinkError::Protocol("a reply to no request")),
                // Who asked has given up: the reply is taken off the wire, that is all.
                Some(None) => {}
                Some(Some(token)) => {
                    let answer = answer_of_reply(&reply, unix_time);
                    return Ok(Some(Completion { token, answer }));
                }
            }
        }
    }

    /// Takes the next request whose time budget is used up: it goes to the fallback. Its reply,
    /// should it still come, is ignored.
    pub fn next_expired(&mut self, now: u64) -> Option<T> {
        self.queue
            .pop_expired(now.checked_sub(self.settings.budget)?)
    }

    /// Says what is to be done at this time.
    pub fn tick(&mut self, now: u64) -> Tick {
        match self.state {
            State::Disconnected { retry_at } if now >= retry_at => Tick::Connect,
            State::Connecting { deadline } | State::Handshaking { deadline, .. }
                if now >= deadline =>
            {
                Tick::Disconnect(LinkError::ConnectTimeout)
            }
            State::Ready { .. } if self.stalls_at().is_some_and(|at| now >= at) => {
                Tick::Disconnect(LinkError::Stalled)
            }
            _ => Tick::Idle,
        }
    }

    /// When [`Client::tick`] and [`Client::next_expired`] are to be called next.
    pub fn next_deadline(&mut self) -> u64 {
        let link = match self.state {
            State::Disconnected { retry_at } => retry_at,
            State::Connecting { deadline } | State::Handshaking { deadline, .. } => deadline,
            State::Ready { .. } => self.stalls_at().unwrap_or(u64::MAX),
        };
        match self.queue.oldest() {
            Some(since) => link.min(since + self.settings.budget),
            None => link,
        }
    }

    /// Whether a request waits for its answer.
    pub fn has_waiting(&mut self) -> bool {
        self.queue.oldest().is_some()
    }

    /// Says that the owner has begun to open a connection.
    pub fn connecting(&mut self, now: u64) {
        self.state = State::Connecting {
            deadline: now + CONNECT_TIMEOUT,
        };
    }

    /// Says that the connection is open: the handshake is put before the requests that wait.
    pub fn connected(&mut self, now: u64) {
        let mut handshake = Vec::new();
        // RESP3, for the pushes that keep a cache coherent; every Redis since 6 knows it.
        push_command(
            &[b"HELLO", b"3", b"SETNAME", b"shortlink-edge"],
            &mut handshake,
        );
        let mut owed = 1;
        if self.settings.database != 0 {
            let number = self.settings.database.to_string();
            push_command(&[b"SELECT", number.as_bytes()], &mut handshake);
            owed += 1;
        }
        self.output.splice(..0, handshake);
        self.written = 0;
        self.state = State::Handshaking {
            deadline: now + CONNECT_TIMEOUT,
            owed,
        };
    }

    /// Says that the connection is lost or was given up. All that wait are then handed out by
    /// [`Client::next_completion`], and [`Client::tick`] asks for a new connection in time.
    pub fn disconnected(&mut self, now: u64) {
        let settled = matches!(self.state, State::Ready { since } if now >= since + SETTLED_AFTER);
        let stalled = self.stalls_at().is_some_and(|at| now >= at);
        if settled {
            self.failures = 0;
        }
        let wait = if settled && !stalled {
            0
        } else {
            self.failures = self.failures.saturating_add(1);
            self.backoff()
        };
        self.state = State::Disconnected {
            retry_at: now + wait,
        };
        self.queue.lose();
        self.output.clear();
        self.written = 0;
        self.filled = 0..0;
        self.decoder = Decoder::default();
    }

    /// Whether requests are answered from this connection.
    pub fn is_ready(&self) -> bool {
        matches!(self.state, State::Ready { .. })
    }

    /// How many attempts failed since a connection last held.
    pub fn failures(&self) -> u32 {
        self.failures
    }

    /// When the connection counts as hanging, if nothing arrives until then.
    fn stalls_at(&self) -> Option<u64> {
        let owed_since = self.queue.owed_since()?;
        Some(owed_since + self.settings.stall_limit())
    }

    /// The wait before the next attempt: doubled with each failure, and anything between half of
    /// it and the whole, so that the workers of many nodes do not return in step.
    fn backoff(&mut self) -> u64 {
        let doubled = FIRST_BACKOFF << self.failures.saturating_sub(1).min(10);
        let longest = doubled.min(LONGEST_BACKOFF);
        // Xorshift: any spread will do.
        self.jitter ^= self.jitter << 13;
        self.jitter ^= self.jitter >> 7;
        self.jitter ^= self.jitter << 17;
        longest / 2 + self.jitter % (longest / 2 + 1)
    }
}
