//! Visits on their way to a Redis that this file plays.

use std::collections::{HashMap, HashSet};

use proptest::prelude::*;
use shortlink_resolver::visits::spool::{HEADER_LENGTH, header, read_header, whole_frames};
use shortlink_resolver::visits::{BatchId, Visits};
use shortlink_resolver::vocabulary::KeyPrefix;
use shortlink_resolver::vocabulary::visit::evidence::VisitEvidence;
use shortlink_resolver::vocabulary::visit::{VisitEvent, VisitFrames, VisitId, VisitMethod};
use shortlink_resolver::{NodeId, Recorded, VisitSettings};

const ORIGIN: u64 = 77;

fn settings() -> VisitSettings {
    VisitSettings {
        batch: 10,
        bytes: 2048,
        interval: 200,
        buffer: 64 << 10,
        streams: 3,
    }
}

fn visits(settings: &VisitSettings) -> Visits {
    Visits::new(settings, &KeyPrefix::default(), ORIGIN)
}

fn event(agent: &[u8]) -> VisitEvent<'_> {
    VisitEvent {
        id: VisitId {
            origin: 0,
            sequence: 0,
        },
        time_ms: 1_767_225_600_123,
        status: 302,
        method: VisitMethod::Get,
        code: b"Ab3xK9q2",
        host: b"s.example.com",
        client: b"192.0.2.1",
        user_agent: agent,
        referrer: b"",
        accept_language: b"de",
        purpose: b"",
        evidence: VisitEvidence::UNKNOWN,
        click: None,
        variant: b"",
    }
}

fn ids(frames: &[u8]) -> Vec<VisitId> {
    VisitFrames::new(frames)
        .map(|frame| frame.expect("a whole frame").id)
        .collect()
}

/// The frames of an `XADD`, which must be for the right stream.
fn frames_of(command: &[u8]) -> Vec<u8> {
    let head = b"*5\r\n$4\r\nXADD\r\n$8\r\nsl:v:{2}\r\n$1\r\n*\r\n$1\r\nb\r\n$";
    let rest = command.strip_prefix(head).expect("XADD of the stream");
    let end = rest.iter().position(|&byte| byte == b'\r').expect("a line");
    let length: usize = String::from_utf8_lossy(&rest[..end])
        .parse()
        .expect("a length");
    let frames = &rest[end + 2..];
    assert_eq!(frames.len(), length + 2);
    assert!(frames.ends_with(b"\r\n"));
    frames[..length].to_vec()
}

fn node() -> NodeId {
    NodeId::new(0)
}

/// Sends what is due.
fn sent(visits: &mut Visits, now: u64) -> Vec<(BatchId, Vec<VisitId>)> {
    let mut batches = Vec::new();
    while let Some(id) = visits.send(node(), now) {
        let mut command = Vec::new();
        visits.write(id, &mut command);
        batches.push((id, ids(&frames_of(&command))));
    }
    batches
}

#[test]
fn a_batch_leaves_when_it_is_full_or_old() {
    let mut visits = visits(&settings());
    assert_eq!(visits.shard(), 2);
    assert_eq!(visits.deadline(), None);
    assert_eq!(visits.record(event(b""), 1000), Recorded::First);
    assert_eq!(visits.record(event(b""), 1100), Recorded::Kept);
    assert_eq!(visits.deadline(), Some(1200));
    assert_eq!(sent(&mut visits, 1199), []);
    let batches = sent(&mut visits, 1200);
    assert_eq!(batches.len(), 1);
    assert_eq!(batches[0].1.len(), 2);
    assert_eq!((visits.deadline(), visits.held()), (None, 2));
    assert!(visits.confirmed(batches[0].0).is_some());
    assert!(visits.confirmed(batches[0].0).is_none(), "only once");
    assert_eq!((visits.held(), visits.bytes()), (0, 0));

    for number in 1..=10 {
        let expected = match number {
            1 => Recorded::First,
            10 => Recorded::Full,
            _ => Recorded::Kept,
        };
        assert_eq!(visits.record(event(b""), 2000), expected);
    }
    assert!(visits.is_due(2000));
    let batches = sent(&mut visits, 2000);
    let sequences: Vec<u64> = batches[0].1.iter().map(|id| id.sequence).collect();
    assert_eq!(sequences, (2..12).collect::<Vec<_>>());
    // By bytes.
    let long = [b'x'; 512];
    let count = (1..)
        .find(|_| visits.record(event(&long), 2000) == Recorded::Full)
        .expect("a full batch");
    assert_eq!(count, 4);
}

#[test]
fn a_refused_batch_is_sent_again_after_a_while_that_doubles() {
    let mut visits = visits(&settings());
    visits.record(event(b""), 0);
    let mut now = 200;
    let mut names = None;
    let mut longest = 0;
    for _ in 0..12 {
        let batches = sent(&mut visits, now);
        assert_eq!(batches.len(), 1, "at {now}");
        assert_eq!(names.get_or_insert(batches[0].1.clone()), &batches[0].1);
        visits.refused(batches[0].0, now);
        let next = visits.deadline().expect("another attempt");
        assert!(next > now && next <= now + 5000);
        assert_eq!(sent(&mut visits, next - 1), []);
        longest = longest.max(next - now);
        now = next;
    }
    assert!(longest >= 2500);
    // As soon as there is a server that may take it.
    let batches = sent(&mut visits, now);
    visits.refused(batches[0].0, now);
    visits.retry();
    assert_eq!(sent(&mut visits, now).len(), 1);
}

#[test]
fn what_was_under_way_on_a_lost_connection_is_sent_again_in_order() {
    let mut visits = visits(&settings());
    for _ in 0..25 {
        visits.record(event(b""), 0);
    }
    let first = sent(&mut visits, 100);
    assert_eq!(first.len(), 2);
    assert_eq!(visits.lost(NodeId::new(1)), 0);
    assert_eq!(visits.lost(node()), 2);
    // A late reply to a lost batch has no receiver.
    let again = sent(&mut visits, 100);
    let names = |batches: &[(BatchId, Vec<VisitId>)]| -> Vec<VisitId> {
        batches.iter().flat_map(|(_, ids)| ids.clone()).collect()
    };
    assert_eq!(names(&again)[..20], names(&first));
    assert_eq!(visits.held(), 25);
    for (id, _) in again {
        visits.confirmed(id);
    }
    assert_eq!(visits.held(), 5);
}

#[test]
fn no_more_than_a_few_batches_are_under_way() {
    let mut visits = visits(&settings());
    for _ in 0..200 {
        visits.record(event(b""), 0);
    }
    let batches = sent(&mut visits, 0);
    assert_eq!(batches.len(), 4);
    assert_eq!(visits.deadline(), None);
    visits.confirmed(batches[2].0);
    assert_eq!(sent(&mut visits, 0).len(), 1);
}

#[test]
fn an_ending_worker_sends_at_once_and_waits_for_a_while() {
    let mut visits = visits(&settings());
    visits.record(event(b""), 1000);
    assert_eq!(visits.drains_until(1000), None);
    visits.drain(1000);
    assert_eq!(visits.drains_until(1000), Some(2000));
    let batches = sent(&mut visits, 1000);
    assert_eq!(batches.len(), 1);
    visits.drain(1500);
    assert_eq!(visits.drains_until(1500), Some(2000));
    assert_eq!(visits.record(event(b""), 1501), Recorded::Full);
    visits.confirmed(batches[0].0);
    assert_eq!(visits.drains_until(2500), Some(2501));
    assert_eq!(visits.drains_until(2501), None);
    assert_eq!(visits.spooled_at(), None, "nothing is taken out of files");
    visits.record(event(b""), 1502);
    sent(&mut visits, 1502);
    visits.record(event(b""), 1503);
    visits.leave();
    let mut left = Vec::new();
    let overflow = visits.overflow(usize::MAX, &mut left);
    let sequences: Vec<u64> = ids(&left).iter().map(|id| id.sequence).collect();
    assert_eq!(sequences, [1, 2, 3]);
    visits.spilled(overflow);
    assert_eq!((visits.held(), visits.bytes()), (0, 0));
    assert_eq!(visits.drains_until(1500), None);
}

#[test]
fn an_ending_worker_waits_for_a_late_visit_that_fills_its_batch() {
    let mut visits = visits(&VisitSettings {
        batch: 1,
        ..settings()
    });
    visits.drain(1000);
    assert_eq!(visits.record(event(b""), 5000), Recorded::Full);
    assert_eq!(visits.drains_until(5000), Some(6000));
}

#[test]
fn the_header_of_a_file_is_read_as_it_was_written() {
    assert_eq!(read_header(&header()), Some(HEADER_LENGTH as u64));
    let mut done = header();
    done[8..].copy_from_slice(&4711u64.to_le_bytes());
    assert_eq!(read_header(&done), Some(4711));
    done[8..].copy_from_slice(&3u64.to_le_bytes());
    assert_eq!(read_header(&done), None);
    assert_eq!(read_header(b"another file's x"), None);
}

#[test]
fn whole_frames_are_found_and_a_cut_one_is_not() {
    let mut frames = Vec::new();
    for _ in 0..3 {
        event(b"agent").write(&mut frames);
    }
    let one = frames.len() / 3;
    for cut in 0..=frames.len() {
        let whole = whole_frames(&frames[..cut], usize::MAX);
        assert_eq!(whole.frames as usize, cut / one);
        assert_eq!(whole.length, cut / one * one);
    }
    assert_eq!(whole_frames(&frames, 1).frames, 1);
    assert_eq!(whole_frames(&frames, one + 1).frames, 2);
    assert_eq!(whole_frames(&[0xff; 40], 100).frames, 0);
}

#[derive(Clone, Debug)]
enum Step {
    Record {
        count: usize,
        length: usize,
    },
    Wait(u64),
    /// Redis executes what has come, and its replies arrive.
    Answer(usize),
    /// Redis executes some of what has come, and then the connection is lost.
    Lose(usize),
    Refuse,
    Spill,
    /// The content of the file is sent.
    Unspool,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => (1usize..40, 0usize..600).prop_map(|(count, length)| Step::Record { count, length }),
        3 => (0u64..400).prop_map(Step::Wait),
        3 => (1usize..5).prop_map(Step::Answer),
        1 => (0usize..5).prop_map(Step::Lose),
        1 => Just(Step::Refuse),
        1 => Just(Step::Spill),
        1 => Just(Step::Unspool),
    ];
    prop::collection::vec(step, 1..150)
}

/// The places of all events, as this test knows them.
#[derive(Default)]
struct World {
    now: u64,
    /// Batches that Redis was sent and has not answered.
    line: Vec<(BatchId, Vec<VisitId>)>,
    /// Number of times that Redis was given an event.
    redis: HashMap<VisitId, u32>,
    file: Vec<u8>,
    /// The part of the file that is under way.
    taken: usize,
    recorded: HashSet<VisitId>,
    dropped: u64,
    stored: u64,
    spooled: u64,
    unspooled: u64,
}

impl World {
    fn send(&mut self, visits: &mut Visits) {
        self.line.extend(sent(visits, self.now));
    }

    fn execute(&mut self, count: usize) -> Vec<BatchId> {
        let count = count.min(self.line.len());
        let done: Vec<_> = self.line.drain(..count).collect();
        for (_, ids) in &done {
            for id in ids {
                *self.redis.entry(*id).or_default() += 1;
            }
        }
        done.into_iter().map(|(id, _)| id).collect()
    }

    fn step(&mut self, visits: &mut Visits, step: &Step) {
        match step {
            Step::Record { count, length } => {
                let agent = vec![b'a'; *length];
                for _ in 0..*count {
                    let before = visits.held();
                    let sequence = self.recorded.len() as u64 + self.dropped;
                    if visits.record(event(&agent), self.now) == Recorded::Dropped {
                        self.dropped += 1;
                        assert_eq!(visits.held(), before);
                        continue;
                    }
                    self.recorded.insert(VisitId {
                        origin: ORIGIN,
                        sequence,
                    });
                }
            }
            Step::Wait(time) => self.now += time,
            Step::Answer(count) => {
                for id in self.execute(*count) {
                    let confirmed = visits.confirmed(id).expect("it was under way");
                    self.stored += u64::from(confirmed.events);
                    if confirmed.is_spooled {
                        self.unspooled += u64::from(confirmed.events);
                        self.file.drain(..std::mem::take(&mut self.taken));
                    }
                }
            }
            Step::Lose(count) => {
                self.execute(*count);
                self.line.clear();
                visits.lost(node());
            }
            Step::Refuse => {
                for (id, _) in std::mem::take(&mut self.line) {
                    visits.refused(id, self.now);
                }
            }
            Step::Spill => {
                let before = self.file.len();
                let overflow = visits.overflow(8 << 10, &mut self.file);
                let count = ids(&self.file[before..]).len() as u64;
                assert_eq!(overflow.events, count);
                visits.spilled(overflow);
                self.spooled += count;
            }
            Step::Unspool => {
                if visits.spooled_at().is_some_and(|at| at <= self.now) && !self.file.is_empty() {
                    assert_eq!(self.taken, 0, "one at a time");
                    let whole = whole_frames(&self.file, 2048);
                    self.taken = whole.length;
                    visits.push_spooled(&self.file[..whole.length], whole.frames, self.now);
                }
            }
        }
    }
}

proptest! {
    /// Whatever happens: nothing that was taken in is lost, memory keeps its bound, and the
    /// numbers say at any moment where everything is.
    #[test]
    fn every_visit_is_accounted_for(steps in steps(), buffer in 8usize..64) {
        let settings = VisitSettings { buffer: buffer << 10, ..settings() };
        let mut visits = visits(&settings);
        let mut world = World::default();
        for step in &steps {
            world.step(&mut visits, step);
            world.send(&mut visits);
            // The file's batch stands in a file already: it is the one thing more.
            prop_assert!(visits.bytes() <= settings.buffer + world.taken + 96);
            let total = world.recorded.len() as u64;
            let on_disk = world.spooled - world.unspooled;
            prop_assert_eq!(total, world.stored + on_disk + visits.held());
        }
        // Redis is there for good.
        for _ in 0..2000 {
            world.now += 200;
            world.step(&mut visits, &Step::Unspool);
            world.send(&mut visits);
            world.step(&mut visits, &Step::Answer(9));
        }
        prop_assert_eq!((visits.held(), visits.bytes(), world.file.len()), (0, 0, 0));
        prop_assert_eq!(world.stored, world.recorded.len() as u64);
        let there: HashSet<_> = world.redis.keys().copied().collect();
        prop_assert_eq!(there, world.recorded);
    }
}
