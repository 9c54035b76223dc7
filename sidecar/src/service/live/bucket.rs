//! How many of something are let through in a second.

use tokio::time::Instant;

/// Fills evenly, up to what a second brings.
#[derive(Debug)]
pub(super) struct Bucket {
    per_s: f64,
    left: f64,
    filled_at: Instant,
}

impl Bucket {
    /// A full one.
    pub(super) fn new(per_s: u32, now: Instant) -> Self {
        Self {
            per_s: per_s.into(),
            left: per_s.into(),
            filled_at: now,
        }
    }

    /// Takes one, if there is one.
    pub(super) fn take(&mut self, now: Instant) -> bool {
        let passed = now.saturating_duration_since(self.filled_at);
        self.filled_at = now;
        self.left = (self.left + passed.as_secs_f64() * self.per_s).min(self.per_s);
        let is_there = self.left >= 1.0;
        if is_there {
            self.left -= 1.0;
        }
        is_there
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn as_many_pass_as_a_second_brings() {
        let begin = Instant::now();
        let mut bucket = Bucket::new(100, begin);
        let passing = |bucket: &mut Bucket, ms| {
            let now = begin + Duration::from_millis(ms);
            (0..1000).filter(|_| bucket.take(now)).count()
        };
        assert_eq!(passing(&mut bucket, 0), 100);
        assert_eq!(passing(&mut bucket, 0), 0);
        assert_eq!(passing(&mut bucket, 500), 50);
        // A long pause does not save up more than a second does.
        assert_eq!(passing(&mut bucket, 60_000), 100);
    }
}
