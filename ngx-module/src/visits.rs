//! Records each answered redirect when its answer is on its way.
//!
//! The log phase is run once a request, whatever it was redirected to within nginx. It records the
//! visit in memory; the connection's output gets a batch when it is full, at the end of an
//! iteration of nginx' loop with whatever else leaves.

use ngx::ffi::{
    NGX_HTTP_GET, NGX_HTTP_HEAD, NGX_HTTP_VERSION_10, NGX_HTTP_VERSION_11, NGX_HTTP_VERSION_20,
    NGX_OK, ngx_http_request_t, ngx_int_t, ngx_table_elt_t, ngx_timeofday, ngx_uint_t,
};
use resolver::counters::{Counter, Gauge};
use resolver::visits::Visits;
use resolver::vocabulary::address::AddressText;
use resolver::vocabulary::visit::evidence::{self, Protocol, VisitEvidence};
use resolver::vocabulary::visit::{VisitEvent, VisitId, VisitMethod};
use resolver::{Now, Outcome, Recorded, Source};

use crate::conf::VisitAddress;
use crate::headers::Headers;
use crate::links::is_exiting;
use crate::state::RequestState;
use crate::worker::{self, Worker, now};

/// Number of bytes that are written to a file at once.
const SPILL: usize = 128 << 10;

/// HTTP/3 as nginx names it; versions before 1.25 do not have the constant.
const HTTP_VERSION_30: u32 = 3000;

/// Returns whether an answer is a visit: redirects, and links that were live once.
fn is_visit(status: ngx_uint_t) -> bool {
    matches!(status, 301..=303 | 307 | 308 | 410)
}

/// The log phase.
pub(crate) unsafe extern "C" fn on_log(request: *mut ngx_http_request_t) -> ngx_int_t {
    // SAFETY: nginx calls this with a valid request that was answered; what it has received lives
    // as long as the request, and recording does not come back.
    unsafe {
        // nginx can be configured to log subrequests too: the answer is their main request's.
        let status = (*request).headers_out.status;
        if request != (*request).main || !is_visit(status) {
            return NGX_OK as ngx_int_t;
        }
        let Some(state) = RequestState::find(request) else {
            return NGX_OK as ngx_int_t;
        };
        let state = state.as_ref();
        let (Some(code), Some(outcome)) = (&state.code, state.outcome) else {
            return NGX_OK as ngx_int_t;
        };
        // An error page may be a redirect: to a code that does not exist there is no visit.
        let is_answer = match outcome {
            Outcome::Redirect | Outcome::Gone => true,
            Outcome::Miss | Outcome::Unavailable => state.source == Source::Fallback,
            _ => false,
        };
        if !is_answer {
            return NGX_OK as ngx_int_t;
        }
        let headers = Headers::of(request);
        let connection = &*(*request).connection;
        let is_truncated = state.visit_address == VisitAddress::Truncated;
        let network;
        let mut client = connection.addr_text.as_bytes();
        if is_truncated {
            network = AddressText::truncated(client);
            client = network.as_bytes();
        }
        let evidence = VisitEvidence::of(&evidence::Request {
            site: headers.fetch_site,
            mode: headers.fetch_mode,
            destination: headers.fetch_dest,
            user: headers.fetch_user,
            accept: headers.accept,
            protocol: match (*request).http_version as u32 {
                NGX_HTTP_VERSION_10 => Protocol::Http10,
                NGX_HTTP_VERSION_11 => Protocol::Http11,
                NGX_HTTP_VERSION_20 => Protocol::Http2,
                HTTP_VERSION_30 => Protocol::Http3,
                _ => Protocol::Unknown,
            },
            is_tls: !connection.ssl.is_null(),
            is_truncated,
        });
        let time = ngx_timeofday();
        let event = VisitEvent {
            // The worker's visits count for themselves.
            id: VisitId {
                origin: 0,
                sequence: 0,
            },
            time_ms: time.sec as u64 * 1000 + time.msec as u64,
            // One of those above.
            status: status as u16,
            method: match (*request).method as u32 {
                NGX_HTTP_GET => VisitMethod::Get,
                NGX_HTTP_HEAD => VisitMethod::Head,
                _ => VisitMethod::Other,
            },
            code: code.as_bytes(),
            host: (*request).headers_in.server.as_bytes(),
            client,
            user_agent: value_of((*request).headers_in.user_agent),
            referrer: value_of((*request).headers_in.referer),
            accept_language: headers.accept_language.unwrap_or_default(),
            purpose: headers.announced_purpose(),
            evidence,
        };
        worker::with(|worker| worker.record_visit(event));
    }
    NGX_OK as ngx_int_t
}

/// The value of a header that nginx has a pointer to; empty when the pointer is null.
unsafe fn value_of<'a>(header: *const ngx_table_elt_t) -> &'a [u8] {
    // SAFETY: the pointer is null or that of a header which lives as long as its request.
    unsafe { header.as_ref() }.map_or(&[], |header| header.value.as_bytes())
}

impl Worker {
    fn record_visit(&mut self, event: VisitEvent<'_>) {
        let now = now();
        if self.edge.visits().is_some_and(Visits::is_full) {
            self.make_room(now);
        }
        match self.edge.record_visit(event, now) {
            Recorded::Kept => {}
            Recorded::First => self.links.set_timer_for_visits(&self.edge),
            Recorded::Full => {
                self.edge.send_visits(now);
                self.links.post_flush();
                self.links.set_timer_for_visits(&self.edge);
            }
            Recorded::Dropped if self.spool.is_some() => {
                worker::count_in(self, Counter::VisitNoSpool, 1);
            }
            Recorded::Dropped => {
                worker::count_in(self, Counter::VisitNoMemory, 1);
                self.journal.visits_dropped(
                    "Redis takes none and buffer= is full; spool= would have them written to files",
                    now.ms,
                );
            }
        }
        if is_exiting() {
            self.drain_visits();
        }
    }

    /// A worker that ends waits for nothing to come: what there is is sent, and waited for a while.
    pub(crate) fn drain_visits(&mut self) {
        let now = now();
        if let Some(visits) = self.edge.visits_mut() {
            visits.drain(now.ms);
            self.edge.send_visits(now);
            self.schedule();
        }
    }

    /// Writes the oldest visits to a file.
    fn make_room(&mut self, now: Now) {
        let (Some(spool), Some(visits)) = (&mut self.spool, self.edge.visits_mut()) else {
            return;
        };
        if spool.rests(now.ms) {
            return;
        }
        self.spill.clear();
        let overflow = visits.overflow(SPILL, &mut self.spill);
        if overflow.events == 0 {
            return;
        }
        match spool.append(&self.spill, now.ms) {
            Ok(()) => {
                visits.spilled(overflow);
                worker::count_in(self, Counter::VisitSpooled, overflow.events);
                self.journal.visits_spooled(now.ms);
            }
            Err(reason) => self.journal.visits_dropped(&reason, now.ms),
        }
        self.measure_spool();
    }

    /// Passes on how full the place for files is.
    pub(crate) fn measure_spool(&self) {
        if let Some(spool) = &self.spool {
            let (files, most) = spool.fullness();
            worker::set_in(self, Gauge::SpoolFiles, files);
            worker::set_in(self, Gauge::SpoolFilesMost, most);
        }
    }

    /// Sends what stands in files, if Redis has nothing else to take.
    pub(crate) fn work_off_spool(&mut self) {
        let is_confirmed = self.edge.take_spool_confirmed();
        let Some(spool) = &mut self.spool else {
            return;
        };
        if is_confirmed {
            spool.confirmed();
        }
        let now = now();
        if is_exiting() || !self.edge.takes_visits(now) {
            return;
        }
        if let Some(visits) = self.edge.visits_mut()
            && visits.spooled_at().is_some_and(|at| at <= now.ms)
            && spool.look_at() <= now.ms
        {
            match spool.next(visits.settings().bytes, now.ms) {
                Ok(None) => {}
                Ok(Some((frames, events))) => {
                    visits.push_spooled(&frames, events, now.ms);
                    self.edge.send_visits(now);
                }
                Err(reason) => self.journal.visits_unreadable(&reason, now.ms),
            }
            self.measure_spool();
        }
    }

    /// The next time that [`Worker::work_off_spool`] may find work, while Redis takes visits.
    pub(crate) fn spool_deadline(&self) -> Option<u64> {
        let spool = self.spool.as_ref()?;
        if !self.edge.takes_visits(now()) {
            return None;
        }
        let at = self.edge.visits()?.spooled_at()?;
        Some(at.max(spool.look_at()))
    }

    /// The worker ends: what Redis has not confirmed is written to a file, or is dropped.
    pub(crate) fn leave_visits(&mut self) {
        let Some(visits) = self.edge.visits_mut() else {
            return;
        };
        visits.leave();
        let mut spooled = 0;
        if let Some(spool) = &mut self.spool {
            loop {
                self.spill.clear();
                let overflow = visits.overflow(SPILL, &mut self.spill);
                if overflow.events == 0 || spool.append(&self.spill, now().ms).is_err() {
                    break;
                }
                visits.spilled(overflow);
                spooled += overflow.events;
            }
        }
        let dropped = visits.held();
        worker::count_in(self, Counter::VisitSpooled, spooled);
        worker::count_in(self, Counter::VisitAtExit, dropped);
        if dropped > 0 {
            let reason = format!("{dropped} were not confirmed when this worker ended");
            self.journal.visits_dropped(&reason, now().ms);
        }
    }
}
