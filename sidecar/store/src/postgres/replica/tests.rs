use super::*;

const MAX_LAG: Duration = Duration::from_secs(10);

/// The samples, and the time after the first of them in seconds.
struct Watched {
    samples: Samples,
    begun: Instant,
}

impl Watched {
    fn new() -> Self {
        Self {
            samples: Samples::default(),
            begun: Instant::now(),
        }
    }

    fn at(&self, second: u64) -> Instant {
        self.begun + Duration::from_secs(second)
    }

    fn sample(&mut self, second: u64, lsn: i64) {
        let (at, position) = (self.at(second), position(1, lsn));
        self.samples.add(Sample { at, position });
    }

    fn check(&self, second: u64, position: Position, used: Use) -> Result<(), Refusal> {
        self.samples.check(position, MAX_LAG, used, self.at(second))
    }
}

fn position(timeline: i64, lsn: i64) -> Position {
    Position {
        line: Line {
            system: 1,
            timeline,
        },
        lsn,
        is_standby: true,
    }
}

#[test]
fn a_replica_is_as_old_as_the_last_sample_that_it_has() {
    let mut watched = Watched::new();
    assert!(watched.check(0, position(1, 5), Use::Listings).is_err());
    watched.sample(0, 5);
    watched.sample(8, 7);
    for (second, timeline, lsn, may_answer) in [
        (8, 1, 5, true),
        (8, 1, 4, false),
        (8, 0, 9, false),
        (8, 2, 9, false),
        (11, 1, 6, false),
        (11, 1, 7, true),
        (18, 1, 9, true),
        (19, 1, 9, false),
    ] {
        let checked = watched.check(second, position(timeline, lsn), Use::Listings);
        assert_eq!(checked.is_ok(), may_answer, "{second} {timeline} {lsn}");
    }
    // Nothing was written: the replica is as new as ever.
    watched.sample(70, 7);
    assert!(watched.check(71, position(1, 7), Use::Listings).is_ok());
    assert_eq!(watched.samples.all.len(), 2);
}

#[test]
fn without_the_primary_the_watermark_proves_what_a_replica_has() {
    let mut watched = Watched::new();
    watched.sample(0, 5);
    watched.sample(11, 9);
    for (second, place) in [(11, 40), (13, 41)] {
        let at = watched.at(second);
        watched.samples.note_watermark(at, Some((1, place)));
    }
    let current = position(1, 9);
    assert!(watched.check(15, current, Use::Visitors).is_ok());
    // It was late before the primary went away.
    let late = watched.check(15, position(1, 5), Use::Visitors);
    assert!(matches!(late, Err(Refusal::Late)));
    let unproven = watched.check(600, current, Use::Visitors);
    assert!(matches!(unproven, Err(Refusal::Unproven)));
    for (watermark, is_proof) in [
        (Some((1, 41)), true),
        (Some((1, 42)), false),
        (Some((2, 0)), false),
        (Some((1, 7)), true),
        (None, true),
    ] {
        let at = watched.at(600);
        watched.samples.note_watermark(at, watermark);
        let checked = watched.check(601, current, Use::Visitors);
        assert_eq!(checked.is_ok(), is_proof, "{watermark:?}");
        assert!(is_proof || matches!(checked, Err(Refusal::Overtaken)));
    }
    assert!(watched.check(601, current, Use::Listings).is_err());
}
