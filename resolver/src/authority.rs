//! The authority of a connection to Redis: whether its data set is proved current.
//!
//! A working connection is not enough for bad news: its server may be a replica that no longer receives changes, or one
//! that was promoted with old data. The sidecar proves the data set with beats ([`vocabulary::generation`]), which
//! workers read on each connection. A replica is current if it has a beat that recently proved its master current.

use vocabulary::generation::Generation;
use vocabulary::{BadNews, Found, MissReason, Record};

/// Interval of readings, in milliseconds.
pub(crate) const READ_EVERY: u64 = 1000;

/// Time for which a proof holds, in milliseconds. A proof is as old as the reading before the one
/// that saw the beat grow, so this allows three seconds without news.
const LASTING: u64 = 3000 + READ_EVERY;

/// The same of a replica, whose proof is one of its master: it may be that of the reading before the last.
const LASTING_COPY: u64 = LASTING + READ_EVERY;

/// The authority of one connection.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Authority {
    /// The value that was read last, if there was one, and when it was requested.
    last: Option<(Generation, u64)>,
    /// Time of the request that is on its way.
    asked_at: Option<u64>,
    /// Set when the reply to this request is about another key than the next one.
    is_outdated: bool,
    /// End of the proof; 0 without one.
    until: u64,
    /// The last two beats that proved a master current, and the times since which they do.
    proofs: [(u64, u64); 2],
}

impl Authority {
    /// Reports whether bad news may be given now.
    #[inline]
    pub(crate) fn holds(&self, now: u64) -> bool {
        now < self.until
    }

    /// The end of the proof; `None` without one.
    pub(crate) fn until(&self) -> Option<u64> {
        (self.until > 0).then_some(self.until)
    }

    /// Forgets a proof that has ended; reports whether there was one.
    pub(crate) fn expire(&mut self, now: u64) -> bool {
        let has_ended = self.until > 0 && !self.holds(now);
        if has_ended {
            self.until = 0;
        }
        has_ended
    }

    /// The generation of the data set, if it is known.
    fn generation(&self) -> Option<u64> {
        self.last.map(|(value, _)| value.generation)
    }

    /// Notes that the value is requested; `false` if a request is on its way.
    pub(crate) fn ask(&mut self, now: u64) -> bool {
        if self.asked_at.is_some() {
            return false;
        }
        self.asked_at = Some(now);
        true
    }

    /// Forgets everything: the value has another key now.
    pub(crate) fn move_on(&mut self) {
        *self = Self {
            asked_at: self.asked_at,
            is_outdated: self.asked_at.is_some(),
            ..Self::default()
        };
    }

    /// Notes the value that was read; reports whether this is another data set than before. The beats of a
    /// replica may come late, all with the same delay. So they prove nothing while its `master` is connected: it
    /// is current if it has a beat that proved the master current.
    pub(crate) fn read(&mut self, value: Option<Generation>, master: Option<&Self>) -> bool {
        let asked_at = self.asked_at.take().unwrap_or_default();
        if std::mem::take(&mut self.is_outdated) {
            return false;
        }
        let before = self.last;
        self.last = value.map(|value| (value, asked_at));
        match (before, value) {
            (Some((old, since)), Some(new)) if old.generation == new.generation => {
                if new.beat < old.beat || new.watermark < old.watermark {
                    self.until = 0;
                    self.proofs = Default::default();
                } else if let Some(master) = master {
                    self.until = self.until.max(master.proof_of_copy(new));
                } else if new.beat > old.beat {
                    // The beat came at some time after the reading before this one.
                    self.until = since + LASTING;
                    self.proofs = [(new.beat, since), self.proofs[0]];
                }
                false
            }
            (before, _) => {
                self.until = 0;
                self.proofs = Default::default();
                before.is_some()
            }
        }
    }

    /// The end of the proof of a copy of this data set; 0 without one.
    fn proof_of_copy(&self, copy: Generation) -> u64 {
        if self.generation() != Some(copy.generation) {
            return 0;
        }
        let proofs = self.proofs.iter();
        let held = proofs.filter(|(beat, _)| (1..=copy.beat).contains(beat));
        held.map(|(_, since)| since + LASTING_COPY)
            .max()
            .unwrap_or_default()
    }

    /// Passes on a record that was read, unless it is a negative one of another generation than the
    /// data set's.
    #[inline]
    pub(crate) fn check<'a>(&self, found: Found<'a>) -> Found<'a> {
        match found {
            Ok(Record::Unknown { generation }) if self.generation() != Some(generation) => {
                Err(MissReason::Doubtful(BadNews::Unknown))
            }
            found => found,
        }
    }
}
