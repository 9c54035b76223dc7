//! The worker's connections: carries out what the edge decides, and gives it the time.
//!
//! Completions are taken one at a time, and finished with no reference to the worker's state held:
//! finishing a request can begin the next one. A timer that only keeps house is cancelable, so
//! that an old worker ends after a reload; while a request waits the timer is not, because the
//! request needs it. A worker that ends keeps its connections, and makes them anew, until its last
//! request is answered: one that was begun before the reload is looked up as all others are.

use std::mem;

use ngx::ffi::{
    ngx_add_timer, ngx_connection_t, ngx_del_timer, ngx_event_t, ngx_exiting, ngx_log_t,
    ngx_msec_t, ngx_post_event, ngx_posted_events, ngx_quit, ngx_terminate,
};
use resolver::visits::Visits;
use resolver::{ConnectionError, NodeId, Tick};

use crate::addresses::{Found, resolve};
use crate::handler::{Settled, complete};
use crate::link::Link;
use crate::worker::{self, Worker, WorkerEdge, now};

/// The connections and their events.
pub(crate) struct Links {
    places: Vec<Option<Box<Link>>>,
    /// Writes what the edge has to send, at the end of an iteration of nginx' loop.
    flush: ngx_event_t,
    /// Wakes up at the edge's next deadline.
    timer: ngx_event_t,
    /// nginx reads a descriptor through an event's data to log it.
    #[expect(dead_code, reason = "the events point to it")]
    no_connection: Box<ngx_connection_t>,
    log: *mut ngx_log_t,
}

impl Links {
    /// Makes it without connections.
    ///
    /// # Safety
    /// The log must be valid as long as the process lives.
    pub(crate) unsafe fn new(log: *mut ngx_log_t) -> Self {
        // SAFETY: all zeros is a valid value of these structures: nginx itself makes them so.
        unsafe {
            let mut no_connection: Box<ngx_connection_t> = Box::new(mem::zeroed());
            no_connection.fd = -1;
            let data: *mut ngx_connection_t = &mut *no_connection;
            let event = |handler| {
                let mut event: ngx_event_t = mem::zeroed();
                event.data = data.cast();
                event.log = log;
                event.handler = Some(handler);
                event
            };
            Self {
                places: Vec::new(),
                flush: event(on_flush as unsafe extern "C" fn(*mut ngx_event_t)),
                timer: event(on_timer as unsafe extern "C" fn(*mut ngx_event_t)),
                no_connection,
                log,
            }
        }
    }

    /// The link to a node, if there is one.
    pub(crate) fn get(&mut self, node: NodeId) -> Option<&mut Link> {
        self.places.get_mut(node.index())?.as_deref_mut()
    }

    /// The link to a node.
    pub(crate) fn get_or_make(&mut self, node: NodeId) -> &mut Link {
        if self.places.len() <= node.index() {
            self.places.resize_with(node.index() + 1, || None);
        }
        let log = self.log;
        // SAFETY: the log is valid as long as the process lives.
        self.places[node.index()].get_or_insert_with(|| unsafe { Link::new(node, log) })
    }

    /// Closes every connection without telling the edge.
    pub(crate) fn close_all(&mut self) {
        for link in self.places.iter_mut().flatten() {
            link.close();
        }
    }

    /// Sees to it that what the edge has to send is sent at the end of this turn.
    pub(crate) fn post_flush(&mut self) {
        // SAFETY: the event lives as long as the process; nginx runs posted events only when no
        // handler runs.
        unsafe {
            ngx_post_event(&mut self.flush, &raw mut ngx_posted_events);
        }
    }

    /// Arms the timer for the edge's next deadline. An earlier timer stays: it looks again when
    /// it fires, and setting one costs more than a look.
    pub(crate) fn set_timer(&mut self, edge: &mut WorkerEdge) {
        let drains_until = drains_until(edge);
        let is_needed = edge.has_waiting() || drains_until.is_some();
        self.timer.set_cancelable(u32::from(!is_needed));
        let deadline = edge.next_deadline().min(drains_until.unwrap_or(u64::MAX));
        if deadline != u64::MAX {
            self.arm(deadline);
        }
    }

    /// The same for a batch of visits that has just been begun or filled.
    #[inline]
    pub(crate) fn set_timer_for_visits(&mut self, edge: &WorkerEdge) {
        if let Some(deadline) = edge.visits().and_then(Visits::deadline) {
            self.arm(deadline);
        }
    }

    /// Has the timer fire no later than that, unless the worker ends before.
    pub(crate) fn look_at(&mut self, deadline: u64) {
        if !is_exiting() {
            self.arm(deadline);
        }
    }

    /// Has the next turn of the loop come at once, whatever it would wait for.
    pub(crate) fn hurry(&mut self) {
        self.arm(now().ms);
    }

    /// As [`Links::set_timer`] for a request that has just begun to wait: nothing else has changed.
    #[inline]
    pub(crate) fn set_timer_for_waiting(&mut self, edge: &mut WorkerEdge) {
        if let Some(deadline) = edge.waiting_deadline() {
            self.timer.set_cancelable(0);
            self.arm(deadline);
        }
    }

    #[inline]
    fn arm(&mut self, deadline: u64) {
        // SAFETY: the event lives as long as the process, and the flags say whether it is armed.
        unsafe {
            let wait = deadline.saturating_sub(now().ms);
            if self.timer.timer_set() == 0 {
                ngx_add_timer(&mut self.timer, wait as ngx_msec_t);
            } else if (self.timer.timer.key as u64) > deadline {
                ngx_del_timer(&mut self.timer);
                ngx_add_timer(&mut self.timer, wait as ngx_msec_t);
            }
        }
    }
}

/// Until when a worker that ends waits for its visits to be confirmed; `None` when it need not.
fn drains_until(edge: &WorkerEdge) -> Option<u64> {
    if !is_exiting() {
        return None;
    }
    edge.visits()?.drains_until(now().ms)
}

/// Returns whether this worker may not end yet.
fn is_needed(edge: &WorkerEdge) -> bool {
    edge.has_waiting() || drains_until(edge).is_some()
}

/// Returns whether this worker is about to end.
pub(crate) fn is_exiting() -> bool {
    // SAFETY: written by nginx in this very thread, or by its signal handler, and only read here.
    unsafe { ngx_exiting != 0 || ngx_terminate != 0 || ngx_quit != 0 }
}

/// Does what is due: requests out of time, connections to be made, hanging connections.
///
/// # Safety
/// May finish requests: the caller may not hold a reference to the worker's state, nor use a
/// request afterwards.
pub(crate) unsafe fn drive() {
    // SAFETY: `with` is left before a request is finished; what is done within it does not come
    // back.
    unsafe {
        // Requests first: one that fails to be answered in time is worse than a late reconnect.
        loop {
            let next = worker::with(|worker| {
                let done = worker.edge.next_expired(now())?;
                Some((
                    done.token,
                    Settled::copy(done.answer, done.source, done.token),
                ))
            });
            match next {
                Some(Some((state, settled))) => complete(state, settled),
                Some(None) | None => break,
            }
        }
        while let Some(Some(due)) = worker::with(one_tick) {
            match due {
                Due::Done => {}
                Due::Lose(node, reason) => lose(node, &reason),
                Due::Resolve(node, name) => resolve(node, &name),
            }
        }
        worker::with(|worker| {
            worker.journal.notices(&mut worker.edge, now().ms);
            worker.measure();
            worker.edge.send_visits(now());
            worker.work_off_spool();
            worker.schedule();
        });
    }
}

/// The remaining step of a task that was due.
enum Due {
    /// Nothing.
    Done,
    /// The connection must be given up.
    Lose(NodeId, ConnectionError),
    /// The name of the node's server must be looked up.
    Resolve(NodeId, String),
}

/// Does one thing that is due, or as much as can be done while the worker's state is held;
/// `None` when nothing is due.
fn one_tick(worker: &mut Worker) -> Option<Due> {
    match worker.edge.tick(now()) {
        Tick::Idle => None,
        Tick::Connect(node) => {
            worker.edge.connecting(node, now());
            let address = worker.edge.address(node)?.clone();
            match worker.addresses.find(node, &address) {
                // A look-up has a timer of nginx' own, which would keep a worker that ends.
                Found::Name(_) if is_exiting() && !is_needed(&worker.edge) => {
                    Some(Due::Lose(node, ConnectionError::Lost))
                }
                Found::Name(name) => Some(Due::Resolve(node, name)),
                Found::Now(address) => {
                    if worker.links.get_or_make(node).connect(address) {
                        return Some(Due::Done);
                    }
                    worker.log_outage(node, "the connection can't be opened");
                    Some(Due::Lose(node, ConnectionError::Lost))
                }
                Found::Not(reason) => {
                    worker.log_outage(node, &reason);
                    Some(Due::Lose(node, ConnectionError::Lost))
                }
            }
        }
        Tick::Disconnect(node, ConnectionError::Retired) => {
            worker.journal.forget(node);
            Some(Due::Lose(node, ConnectionError::Retired))
        }
        Tick::Disconnect(node, error) => {
            worker.log_outage(node, &error.to_string());
            Some(Due::Lose(node, error))
        }
    }
}

/// Gives a connection up: all that wait for it go to the fallback.
///
/// # Safety
/// As for [`drive`].
pub(crate) unsafe fn lose(node: NodeId, reason: &ConnectionError) {
    // SAFETY: as in `drive`.
    unsafe {
        worker::with(|worker| {
            if let Some(link) = worker.links.get(node) {
                link.close();
            }
            worker.addresses.lost(node);
            worker.edge.disconnected(node, reason, now());
        });
        // With the connection gone this hands out only those who were lost with it.
        let _ = take_completions(node);
        worker::with(Worker::schedule);
    }
}

/// Finishes every request that is done.
///
/// # Safety
/// As for [`drive`].
pub(crate) unsafe fn take_completions(node: NodeId) -> Result<(), ConnectionError> {
    loop {
        // SAFETY: the copy is made in the pool of a request that waits, hence lives; copying does
        // not come back. The request is finished after `with` was left.
        unsafe {
            let next = worker::with(|worker| {
                let done = worker.edge.next_completion(node, now())?;
                Ok(done.map(|done| {
                    let settled = Settled::copy(done.answer, done.source, done.token);
                    (done.token, settled)
                }))
            });
            match next {
                Some(Ok(Some((state, settled)))) => complete(state, settled),
                Some(Ok(None)) | None => return Ok(()),
                Some(Err(error)) => return Err(error),
            }
        }
    }
}

/// Does what became due while replies were read, such as a server that others have named.
///
/// # Safety
/// As for [`drive`].
pub(crate) unsafe fn tick_if_due() {
    // SAFETY: nothing is held here.
    unsafe {
        if worker::with(|worker| worker.edge.next_deadline() <= now().ms) == Some(true) {
            drive();
        }
    }
}

/// Writes what the edge has to send.
///
/// # Safety
/// As for [`drive`].
pub(crate) unsafe fn flush() {
    // SAFETY: sending does not come back.
    unsafe {
        loop {
            let broken = worker::with(|worker| {
                let micros = worker.micros();
                let Worker { links, edge, .. } = worker;
                for link in links.places.iter_mut().flatten() {
                    if !link.flush(edge, micros) {
                        return Some(link.node());
                    }
                }
                None
            });
            match broken {
                Some(Some(node)) => {
                    worker::with(|worker| worker.log_outage(node, "the connection broke"));
                    lose(node, &ConnectionError::Lost);
                }
                Some(None) | None => return,
            }
        }
    }
}

unsafe extern "C" fn on_flush(_event: *mut ngx_event_t) {
    // SAFETY: nothing is held here.
    unsafe { flush() };
}

/// A deadline has come.
unsafe extern "C" fn on_timer(_event: *mut ngx_event_t) {
    // SAFETY: nothing is held here.
    unsafe { drive() };
}
