//! One connection to a Redis server, on which commands are pipelined.
//!
//! A connection decides when to connect and when to give up, and tracks the pending replies. Their
//! meaning is its owner's business: each command is queued with its purpose, and replies, which
//! come in the same order, are handed out with it. Redis' pushes (invalidations) are handed out in
//! their place between them; this order is what makes a cache on this connection coherent.

mod round_trips;
mod span;

use std::collections::VecDeque;
use std::ops::Range;

use crate::connection_error::ConnectionError;
use crate::handshake::{Handshake, Step};
use crate::lookups::LookupId;
use crate::resp::{Decoded, Decoder, Reply};
use crate::visits::BatchId;

use round_trips::RoundTrips;
pub(crate) use span::Span;

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

/// Time limit for the connection and its handshake, in milliseconds.
const CONNECT_TIMEOUT: u64 = 1000;

/// Purpose of a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Owed {
    /// A step of the handshake.
    Handshake(Step),
    /// A look-up's record.
    Lookup(LookupId),
    /// That a batch of visits is stored.
    Visits(BatchId),
    /// Nothing: that it comes is all.
    Acknowledgement,
    /// `ROLE`
    Role,
    /// `GET` of the data set's generation
    Generation,
    /// `SENTINEL GET-MASTER-ADDR-BY-NAME`
    Master,
    /// `SENTINEL SENTINELS`
    Sentinels,
    /// `CLUSTER SLOTS`
    Slots,
}

/// A received reply or push.
#[derive(Clone, Debug)]
pub(crate) struct Received {
    /// Purpose of the reply; `None` for a push.
    pub(crate) owed: Option<Owed>,
    /// Position in the input.
    pub(crate) span: Span,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// There is no connection; the next is due at `retry_at`.
    Disconnected { retry_at: u64 },
    /// The owner opens a connection.
    Connecting { deadline: u64 },
    /// The handshake is sent; so many replies to it are owed before those to requests.
    Handshaking { deadline: u64, owed: u8 },
    /// Commands are answered.
    Ready { since: u64 },
}

/// Action that is due at a time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Due {
    Nothing,
    Connect,
    Disconnect(ConnectionError),
    /// Something is to be asked, to see whether Redis is there and current.
    Heartbeat,
}

/// Time limits in milliseconds, and the limit of a reply's size.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Patience {
    /// Longest wait for a reply before the connection is given up.
    pub(crate) stall: u64,
    /// Interval of heartbeats.
    pub(crate) heartbeat: u64,
    /// The most bytes that a reply may take; the length of a connection's input.
    pub(crate) longest_reply: usize,
}

#[derive(Debug)]
pub(crate) struct Connection {
    handshake: Handshake,
    patience: Patience,
    state: State,
    /// Attempts that failed since a connection last held. While it is not 0, requests are not made
    /// to wait for a connection that may never come.
    failures: u32,
    /// Set when the last attempt failed for a reason that an operator must fix.
    is_refused: bool,
    /// State of the generator that spreads reconnects of many workers.
    jitter: u64,
    /// The commands whose replies are owed, the oldest first, and when each was sent.
    owed: VecDeque<(Owed, u64)>,
    /// Time of the last heartbeat.
    beat_at: u64,
    /// Set when invalidations are pushed on this connection.
    is_tracking: bool,
    /// Bytes to be written; those before `written` are.
    output: Vec<u8>,
    written: usize,
    /// Bytes that were read; those of `filled` are still to be decoded.
    input: Box<[u8]>,
    filled: Range<usize>,
    decoder: Decoder,
    clock: RoundTrips,
}

impl Connection {
    /// Makes a connection that wants to be opened at once. `seed` spreads the reconnects of
    /// workers that lose the same Redis.
    pub(crate) fn new(handshake: Handshake, patience: Patience, now: u64, seed: u64) -> Self {
        Self {
            handshake,
            patience,
            state: State::Disconnected { retry_at: now },
            failures: 0,
            is_refused: false,
            jitter: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1,
            owed: VecDeque::new(),
            beat_at: now,
            is_tracking: false,
            output: Vec::new(),
            written: 0,
            input: vec![0; patience.longest_reply].into_boxed_slice(),
            filled: 0..0,
            decoder: Decoder::new(patience.longest_reply),
            clock: RoundTrips::default(),
        }
    }

    /// Reports whether a request may be sent now, or wait for the connection that is being made.
    pub(crate) fn admits(&self) -> bool {
        // While nothing has failed yet, the first requests wait for the connection that is being
        // made: it is there within a fraction of the budget, and a start or reload would
        // otherwise send a burst to the fallback.
        (matches!(self.state, State::Ready { .. }) || self.failures == 0)
            && self.owed.len() < MAX_OWED
    }

    /// Queues a purpose and returns the buffer for its command.
    #[inline]
    pub(crate) fn ask(&mut self, owed: Owed, now: u64) -> &mut Vec<u8> {
        self.owed.push_back((owed, now));
        self.clock.asked += 1;
        &mut self.output
    }

    /// Reports whether commands are answered.
    pub(crate) fn is_ready(&self) -> bool {
        matches!(self.state, State::Ready { .. })
    }

    /// Reports whether there is no connection, nor one being opened.
    pub(crate) fn is_closed(&self) -> bool {
        matches!(self.state, State::Disconnected { .. })
    }

    /// Reports whether invalidations are pushed on this connection.
    pub(crate) fn is_tracking(&self) -> bool {
        self.is_tracking
    }

    /// Returns the bytes to write to the connection now.
    pub(crate) fn output(&self) -> &[u8] {
        match self.state {
            State::Handshaking { .. } | State::Ready { .. } => &self.output[self.written..],
            State::Disconnected { .. } | State::Connecting { .. } => &[],
        }
    }

    /// Says how much of [`Connection::output`] was written, at which time in microseconds.
    pub(crate) fn wrote(&mut self, count: usize, micros: u64) {
        self.written += count;
        if self.written >= self.output.len() {
            self.output.clear();
            self.written = 0;
            self.clock.wrote(micros);
        }
    }

    /// Returns the buffer for the next bytes; never empty after everything was taken.
    pub(crate) fn input_space(&mut self) -> &mut [u8] {
        // Move what is left to the front: mostly nothing, or the beginning of one reply.
        if self.filled.start > 0 {
            self.input.copy_within(self.filled.clone(), 0);
            self.filled = 0..self.filled.len();
        }
        &mut self.input[self.filled.end..]
    }

    /// Says how many bytes were read into [`Connection::input_space`]; `micros` is the time in
    /// microseconds.
    pub(crate) fn received(&mut self, count: usize, micros: u64) {
        self.filled.end = (self.filled.end + count).min(self.input.len());
        self.clock.now = micros;
    }

    /// Takes the next thing that was received.
    ///
    /// # Errors
    /// Fails if the connection must be given up.
    #[inline]
    pub(crate) fn next_received(&mut self) -> Result<Option<Received>, ConnectionError> {
        loop {
            let unread = &self.input[self.filled.clone()];
            let (reply, used) = match self.decoder.decode(unread)? {
                Decoded::Incomplete => return Ok(None),
                Decoded::Skip(used) => {
                    self.filled.start += used;
                    continue;
                }
                Decoded::Reply(reply, used) => (reply, used),
            };
            let span = Span::of(&reply, self.filled.start + used);
            self.filled.start += used;
            if span.is_unasked() {
                return Ok(Some(Received { owed: None, span }));
            }
            if let State::Disconnected { .. } | State::Connecting { .. } = self.state {
                return Err(ConnectionError::Protocol("a reply before the handshake"));
            }
            let Some((owed, _)) = self.owed.pop_front() else {
                return Err(ConnectionError::Protocol("a reply to no request"));
            };
            self.clock.answered += 1;
            return Ok(Some(Received {
                owed: Some(owed),
                span,
            }));
        }
    }

    /// Returns the reply at a position.
    #[inline]
    pub(crate) fn reply(&self, span: &Span) -> Reply<'_> {
        span.reply(&self.input)
    }

    /// Returns the round-trip time of the last reply handed out, in microseconds.
    pub(crate) fn round_trip(&mut self) -> u64 {
        self.clock.round_trip()
    }

    /// Reads the reply to a step of the handshake.
    ///
    /// # Errors
    /// Fails if the server can't be used.
    pub(crate) fn shake(
        &mut self,
        step: Step,
        span: &Span,
        now: u64,
    ) -> Result<(), ConnectionError> {
        let outcome = self.handshake.judge(step, &self.reply(span));
        match outcome {
            Ok(is_tracking) => self.is_tracking |= is_tracking,
            Err(error) => {
                self.is_refused = matches!(error, ConnectionError::Refused(_));
                return Err(error);
            }
        }
        if let State::Handshaking { deadline, owed } = self.state {
            self.state = match owed {
                0 | 1 => State::Ready { since: now },
                _ => State::Handshaking {
                    deadline,
                    owed: owed - 1,
                },
            };
            if self.is_ready() {
                self.failures = 0;
                self.is_refused = false;
                self.beat_at = now;
            }
        }
        Ok(())
    }

    /// Reads the reply to `ROLE`.
    ///
    /// # Errors
    /// Fails if the server can't be used any more.
    pub(crate) fn check_role(&self, span: &Span) -> Result<(), ConnectionError> {
        self.handshake.judge_role(&self.reply(span))
    }

    /// Reports whether the server must have a certain role.
    pub(crate) fn requires_role(&self) -> bool {
        self.handshake.requires_role()
    }

    /// Says what is to be done at this time.
    pub(crate) fn due(&self, now: u64) -> Due {
        match self.state {
            State::Disconnected { retry_at } if now >= retry_at => Due::Connect,
            State::Connecting { deadline } | State::Handshaking { deadline, .. }
                if now >= deadline =>
            {
                Due::Disconnect(ConnectionError::ConnectTimeout)
            }
            State::Ready { .. } if self.stalls_at().is_some_and(|at| now >= at) => {
                Due::Disconnect(ConnectionError::Stalled)
            }
            State::Ready { .. } if now >= self.beats_at() => Due::Heartbeat,
            _ => Due::Nothing,
        }
    }

    /// Returns the time of the next call of [`Connection::due`].
    pub(crate) fn next_deadline(&self) -> u64 {
        match self.state {
            State::Disconnected { retry_at } => retry_at,
            State::Connecting { deadline } | State::Handshaking { deadline, .. } => deadline,
            State::Ready { .. } => {
                let stalls_at = self.stalls_at().unwrap_or(u64::MAX);
                self.beats_at().min(stalls_at)
            }
        }
    }

    /// Says that something was asked to hear whether Redis is there.
    pub(crate) fn beaten(&mut self, now: u64) {
        self.beat_at = now;
    }

    /// Says that the owner has begun to open a connection.
    pub(crate) fn connecting(&mut self, now: u64) {
        self.state = State::Connecting {
            deadline: now + CONNECT_TIMEOUT,
        };
    }

    /// Says that the connection is open: the handshake is put before the requests that wait.
    pub(crate) fn connected(&mut self, now: u64) {
        self.output.splice(..0, self.handshake.commands().to_vec());
        self.written = 0;
        let steps = self.handshake.steps();
        for step in steps.iter().rev() {
            self.owed.push_front((Owed::Handshake(*step), now));
        }
        self.clock.asked += steps.len() as u64;
        self.state = State::Handshaking {
            deadline: now + CONNECT_TIMEOUT,
            owed: steps.len() as u8,
        };
    }

    /// Says that the connection is lost or was given up, and hands out the look-ups that were
    /// asked on it.
    pub(crate) fn disconnected(&mut self, now: u64) -> impl Iterator<Item = LookupId> {
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
        self.is_tracking = false;
        self.output.clear();
        self.written = 0;
        self.filled = 0..0;
        self.decoder = Decoder::new(self.input.len());
        self.clock = RoundTrips::default();
        let lost = std::mem::take(&mut self.owed);
        lost.into_iter().filter_map(|(owed, _)| match owed {
            Owed::Lookup(lookup) => Some(lookup),
            _ => None,
        })
    }

    /// Returns the time at which the connection counts as hanging unless something arrives.
    ///
    /// No request waits for visits, so they never make a connection hang by themselves: giving it
    /// up would make the whole cache stale. A Redis that is really gone does not answer the next
    /// heartbeat.
    fn stalls_at(&self) -> Option<u64> {
        let is_waited_for = |owed: &&(Owed, u64)| !matches!(owed.0, Owed::Visits(_));
        let (_, since) = self.owed.iter().find(is_waited_for)?;
        Some(since + self.patience.stall)
    }

    /// Returns the time of the next heartbeat.
    fn beats_at(&self) -> u64 {
        self.beat_at + self.patience.heartbeat
    }

    /// Returns the wait before the next attempt: it doubles with every failure, and is random
    /// between half and the whole, so that the workers of many nodes do not return in step.
    fn backoff(&mut self) -> u64 {
        let doubled = FIRST_BACKOFF << self.failures.saturating_sub(1).min(10);
        let longest = if self.is_refused {
            // A wrong password does not become right by being tried often.
            LONGEST_BACKOFF
        } else {
            doubled.min(LONGEST_BACKOFF)
        };
        // Xorshift: any spread will do.
        self.jitter ^= self.jitter << 13;
        self.jitter ^= self.jitter >> 7;
        self.jitter ^= self.jitter << 17;
        longest / 2 + self.jitter % (longest / 2 + 1)
    }
}
