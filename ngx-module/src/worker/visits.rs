//! Recorded visits on their way to Redis, or to files while it takes none.

use resolver::counters::{Counter, Gauge};
use resolver::visits::Visits;
use resolver::vocabulary::visit::VisitEvent;
use resolver::{Now, Recorded};

use crate::nginx::process::is_exiting;
use crate::worker::backend::Backend;
use crate::worker::edge::now;

/// Number of bytes that are written to a file at once.
const SPILL: usize = 128 << 10;

impl Backend {
    /// Records a visit in memory.
    pub(crate) fn record_visit(&mut self, event: VisitEvent<'_>) {
        let now = now();
        if self.edge.visits().is_some_and(Visits::is_full) {
            self.make_room(now);
        }
        match self.edge.record_visit(event, now) {
            Recorded::Kept => {}
            Recorded::First => self.connections.set_timer_for_visits(&self.edge),
            Recorded::Full => {
                self.edge.send_visits(now);
                self.connections.post_flush();
                self.connections.set_timer_for_visits(&self.edge);
            }
            Recorded::Dropped if self.spool.is_some() => {
                self.count_some(Counter::VisitNoSpool, 1);
            }
            Recorded::Dropped => {
                self.count_some(Counter::VisitNoMemory, 1);
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
                self.count_some(Counter::VisitSpooled, overflow.events);
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
            self.set(Gauge::SpoolFiles, files);
            self.set(Gauge::SpoolFilesMost, most);
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

    /// The next time that [`Backend::work_off_spool`] may find work, while Redis takes visits.
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
        self.count_some(Counter::VisitSpooled, spooled);
        self.count_some(Counter::VisitAtExit, dropped);
        if dropped > 0 {
            let reason = format!("{dropped} were not confirmed when this worker ended");
            self.journal.visits_dropped(&reason, now().ms);
        }
    }
}
