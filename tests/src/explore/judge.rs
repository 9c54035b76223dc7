//! The model: which answers the promises allow, given what was acknowledged and which faults there
//! were.

use std::time::Duration;

use super::bounds::{BAD_NEWS, Bound, CONVERGED, LAGGED, NOTICED, PUBLISHED, REACHED, SEEN};
use super::history::{Answer, End, History, Moment, State, Visit};

/// The harm that a fault can do to answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Workers cannot ask Redis.
    EdgeBlind,
    /// Redis may lack changes.
    Unpublished,
    /// A replica that workers read from may lack changes.
    Lagging,
    /// Redis has the data of an earlier moment.
    Rewound,
    /// Redis has lost records.
    Lost,
    /// The fallback cannot answer.
    NoFallback,
    /// Requests to nginx may break.
    NginxBreaks,
    /// Visits that were not yet stored may be lost.
    VisitsLost,
    /// A sidecar decides by a wrong clock.
    WrongClock,
}

/// A fault as it happened.
#[derive(Clone, Debug)]
pub struct Window {
    /// Its name.
    pub name: String,
    /// The moment before it began.
    pub begin: Moment,
    /// The moment after it ended; none while it lasts.
    pub end: Option<Moment>,
    /// Its effects.
    pub effects: &'static [Effect],
}

impl Window {
    fn end(&self) -> Moment {
        self.end.unwrap_or(Moment::MAX / 2)
    }

    fn has(&self, effect: Effect) -> bool {
        self.effects.contains(&effect)
    }
}

/// A time in which the machine stood still for the tool itself, and its length beyond what is usual.
pub type Stall = (Moment, Duration);

/// Judges visits.
#[derive(Clone, Debug)]
pub struct Judge {
    /// The faults.
    pub windows: Vec<Window>,
    /// The stalls of the machine.
    pub stalls: Vec<Stall>,
    /// `stale=` of the cache.
    pub stale: Duration,
}

/// An answer beyond a bound.
#[derive(Clone, Debug)]
pub struct Violation {
    /// The visit.
    pub visit: Visit,
    /// The name of the bound.
    pub bound: &'static str,
    /// The violation in words.
    pub text: String,
}

/// The kind of an answer that is too old.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Redirect,
    Unknown,
    Gone,
}

impl Judge {
    /// Judges a visit of a code with the history of its link, and that of the link's campaign.
    ///
    /// # Errors
    /// The violated bound.
    pub fn judge(
        &self,
        link: &History,
        campaign: Option<&History>,
        visit: &Visit,
    ) -> Result<(), Box<Violation>> {
        let is_decided = matches!(
            visit.answer,
            Answer::Redirect(_) | Answer::Unknown | Answer::Gone
        );
        // The fallback goes by its own clock.
        if link.is_timed
            && is_decided
            && self.reaches(Effect::WrongClock, visit.begin, visit.end, CONVERGED.limit)
        {
            return Ok(());
        }
        let violation = |bound: &'static str, text: String| {
            Err(Box::new(Violation {
                visit: visit.clone(),
                bound,
                text,
            }))
        };
        let late = |kind, over: Option<End>| match over {
            Some(over) => visit
                .begin
                .saturating_sub(over.at + self.allowed(kind, over, visit)),
            None => Duration::ZERO,
        };
        // The least time by which any explanation is beyond its bound.
        let least: Option<Duration> = match &visit.answer {
            Answer::Unavailable if self.may_be_unavailable(link, campaign, visit) => return Ok(()),
            Answer::Unavailable => {
                return violation("available", "503 though a part could be asked".to_owned());
            }
            Answer::Broken(_) if self.touches(Effect::NginxBreaks, visit.begin, visit.end) => {
                return Ok(());
            }
            Answer::Broken(error) => return violation("answered", error.clone()),
            Answer::Other(status) => return violation("status", status.to_string()),
            Answer::Redirect(target) => {
                let mut least = None;
                for (version, over) in link.until(visit.end) {
                    let State::Live(own) = &version.state else {
                        continue;
                    };
                    let own_late = late(Kind::Redirect, over);
                    match campaign {
                        None if own == target => keep_least(&mut least, own_late),
                        None => {}
                        Some(campaign) => {
                            for (version, over) in campaign.until(visit.end) {
                                if let State::Live(prefix) = &version.state
                                    && target.strip_prefix(prefix.as_str()) == Some(own)
                                {
                                    let late = late(Kind::Redirect, over).max(own_late);
                                    keep_least(&mut least, late);
                                }
                            }
                        }
                    }
                }
                least
            }
            Answer::Unknown | Answer::Gone => {
                let (state, kind) = match visit.answer {
                    Answer::Gone => (State::Gone, Kind::Gone),
                    _ => (State::Unknown, Kind::Unknown),
                };
                let versions = link.until(visit.end);
                let of_campaign = campaign.into_iter().flat_map(|it| it.until(visit.end));
                let mut least = None;
                for (version, over) in versions.chain(of_campaign) {
                    if version.state == state {
                        keep_least(&mut least, late(kind, over));
                    }
                }
                least
            }
        };
        match least {
            Some(Duration::ZERO) => Ok(()),
            Some(late) => {
                let (name, what) = match visit.answer {
                    Answer::Redirect(_) => ("redirect", "an old redirect"),
                    Answer::Unknown => ("bad-news", "404 for a link that is not unknown"),
                    _ => ("bad-news", "410 for a link that is not gone"),
                };
                violation(
                    name,
                    format!("{what}, {} ms beyond its bound", late.as_millis()),
                )
            }
            None => violation("true", "an answer that was never true".to_owned()),
        }
    }

    /// The time after its end, at `over`, in which a state may still be answered at a visit.
    fn allowed(&self, kind: Kind, end: End, visit: &Visit) -> Duration {
        let (at, over) = (visit.begin, end.at);
        let stalled: Duration = self
            .stalls
            .iter()
            .filter(|(moment, _)| *moment + SEEN.limit >= over && *moment <= visit.end)
            .map(|(_, length)| *length)
            .sum();
        let usual = SEEN.limit + stalled;
        let lasting = |bound: Bound| usual + bound.limit;
        let mut allowed = usual;
        // A Redis that was only slow.
        if !end.published && !self.is_broken(over) {
            allowed = lasting(match kind {
                Kind::Redirect => PUBLISHED,
                Kind::Gone | Kind::Unknown => BAD_NEWS,
            });
        }
        let whole = at.saturating_sub(over);
        let after = PUBLISHED.limit + stalled;
        // Redis has old data, and redirects are never doubted.
        let is_old =
            |window: &Window| window.has(Effect::Unpublished) || window.has(Effect::Rewound);
        if let Some((begin, rewound)) = self.chain(is_old, at, after) {
            let concerns = over + usual >= begin || rewound;
            // The fallback is asked about bad news, unless it is away too: then gone stays gone.
            let is_doubted = kind == Kind::Unknown || kind == Kind::Gone && !self.no_fallback(at);
            if concerns && !is_doubted {
                allowed = allowed.max(whole);
            }
        }
        // A worker cannot know at once that changes no longer reach the Redis that it can ask. From
        // another Redis, or one that was away, it takes no bad news before changes reach it.
        let is_unnoticed = |window: &Window| {
            window.has(Effect::Rewound)
                || window.has(Effect::Unpublished) && !window.has(Effect::EdgeBlind)
        };
        if kind != Kind::Redirect && self.chain(is_unnoticed, at, after).is_some() {
            let since = over.max(self.last_end(Effect::Rewound, at));
            allowed = allowed.max((since + lasting(BAD_NEWS)).saturating_sub(over));
        }
        if self.reaches(Effect::Lagging, over, at, LAGGED.limit) {
            allowed = allowed.max(lasting(LAGGED));
        }
        if self.reaches(Effect::EdgeBlind, over, at, REACHED.limit) {
            let noticed = lasting(NOTICED);
            allowed = allowed.max(match kind {
                Kind::Redirect => noticed + self.stale,
                Kind::Gone if self.no_fallback(at) => noticed + self.stale,
                Kind::Gone | Kind::Unknown => noticed,
            });
        }
        allowed
    }

    /// The chain of windows of a kind that overlap, each extended by `after`, up to a moment: its
    /// beginning, and whether data went back in it.
    fn chain(
        &self,
        concerned: impl Fn(&Window) -> bool,
        at: Moment,
        after: Duration,
    ) -> Option<(Moment, bool)> {
        let mut rest: Vec<&Window> = self.windows.iter().filter(|it| concerned(it)).collect();
        let (mut begin, mut rewound) = (at, false);
        let count = rest.len();
        let covers = |window: &&Window, begin| window.begin <= at && window.end() + after >= begin;
        while let Some(place) = rest.iter().position(|window| covers(window, begin)) {
            let window = rest.swap_remove(place);
            begin = begin.min(window.begin);
            rewound |= window.has(Effect::Rewound);
        }
        (rest.len() < count).then_some((begin, rewound))
    }

    /// The last end of a window with an effect before a moment, or that moment within the window.
    fn last_end(&self, effect: Effect, at: Moment) -> Moment {
        let windows = self.windows.iter();
        let begun = windows.filter(|window| window.has(effect) && window.begin <= at);
        let ends = begun.map(|window| window.end().min(at));
        ends.max().unwrap_or_default()
    }

    /// Returns whether a window with an effect, extended by `after`, lies between two moments or around them.
    fn reaches(&self, effect: Effect, from: Moment, to: Moment, after: Duration) -> bool {
        self.windows.iter().any(|window| {
            window.has(effect)
                && window.begin <= to
                && window.end() + after >= from
                && window.end() + after >= to
        })
    }

    /// Returns whether a fault explains that Redis does not have a change.
    fn is_broken(&self, at: Moment) -> bool {
        self.windows.iter().any(|window| {
            window.has(Effect::Unpublished)
                && window.begin <= at
                && window.end() + PUBLISHED.limit >= at
        })
    }

    fn touches(&self, effect: Effect, from: Moment, to: Moment) -> bool {
        let stalled: Duration = self
            .stalls
            .iter()
            .filter(|(moment, _)| *moment <= to && *moment + Duration::from_secs(10) >= from)
            .map(|(_, length)| *length)
            .sum();
        self.windows.iter().any(|window| {
            window.has(effect)
                && window.begin <= to + SEEN.limit
                && window.end() + REACHED.limit + stalled >= from
        })
    }

    fn no_fallback(&self, at: Moment) -> bool {
        self.touches(Effect::NoFallback, at, at)
    }

    /// Returns whether 503 is allowed: while the fallback is away, unless nothing else ever was and Redis has
    /// the link.
    fn may_be_unavailable(
        &self,
        link: &History,
        campaign: Option<&History>,
        visit: &Visit,
    ) -> bool {
        if !self.touches(Effect::NoFallback, visit.begin, visit.end) {
            return false;
        }
        let others = [
            Effect::EdgeBlind,
            Effect::Rewound,
            Effect::Lost,
            Effect::Lagging,
        ];
        let is_only_fallback = !self.windows.iter().any(|window| {
            window.begin <= visit.end && others.iter().any(|&effect| window.has(effect))
        });
        let is_settled = |history: &History| {
            let last = history.until(visit.end).last();
            last.is_some_and(|(version, _)| {
                matches!(version.state, State::Live(_))
                    && version.published
                    && version
                        .acknowledged
                        .is_some_and(|moment| moment + SEEN.limit <= visit.begin)
            })
        };
        let stalled = self.stalls.iter().any(|(moment, length)| {
            moment <= &visit.end && *moment + *length + SEEN.limit >= visit.begin
        });
        !(is_only_fallback && !stalled && is_settled(link) && campaign.is_none_or(is_settled))
    }
}

fn keep_least(least: &mut Option<Duration>, late: Duration) {
    *least = Some(least.map_or(late, |least| least.min(late)));
}

#[cfg(test)]
mod tests {
    use super::*;

    const TARGET: &str = "https://example.com/";

    fn at(milliseconds: u64) -> Moment {
        Duration::from_millis(milliseconds)
    }

    /// A link that is created at 1 s and revoked at 10 s.
    fn link() -> History {
        let mut history = History::default();
        for (state, moment) in [
            (State::Live(TARGET.to_owned()), 1000),
            (State::Gone, 10_000),
        ] {
            history.ask(state, at(moment));
            history.acknowledge(at(moment + 100), true);
        }
        history
    }

    fn window(begin: u64, end: u64, effects: &'static [Effect]) -> Window {
        Window {
            name: "a fault".to_owned(),
            begin: at(begin),
            end: Some(at(end)),
            effects,
        }
    }

    /// The violated bound of an answer, if any.
    fn judged(windows: &[Window], moment: u64, answer: Answer) -> Option<&'static str> {
        let judge = Judge {
            windows: windows.to_vec(),
            stalls: Vec::new(),
            stale: Duration::from_secs(2),
        };
        let visit = Visit {
            subject: 0,
            begin: at(moment),
            end: at(moment + 10),
            answer,
            edge: String::new(),
        };
        let judged = judge.judge(&link(), None, &visit);
        judged.err().map(|violation| violation.bound)
    }

    fn redirect() -> Answer {
        Answer::Redirect(TARGET.to_owned())
    }

    #[test]
    fn without_a_fault_an_answer_is_as_new_as_a_message() {
        assert_eq!(judged(&[], 500, Answer::Unknown), None);
        assert_eq!(judged(&[], 900, redirect()), Some("true"));
        // Between request and acknowledgement both are true.
        assert_eq!(judged(&[], 1050, redirect()), None);
        assert_eq!(judged(&[], 1050, Answer::Unknown), None);
        assert_eq!(judged(&[], 2050, Answer::Unknown), None);
        assert_eq!(judged(&[], 2200, Answer::Unknown), Some("bad-news"));
        assert_eq!(judged(&[], 5000, Answer::Gone), Some("true"));
        assert_eq!(judged(&[], 5000, Answer::Unavailable), Some("available"));
        assert_eq!(judged(&[], 11_000, redirect()), None);
        assert_eq!(judged(&[], 11_200, redirect()), Some("redirect"));
        let other = Answer::Redirect("https://example.org/".to_owned());
        assert_eq!(judged(&[], 5000, other), Some("true"));
        assert_eq!(judged(&[], 5000, Answer::Other(500)), Some("status"));
        let broken = Answer::Broken("reset".to_owned());
        assert_eq!(judged(&[], 5000, broken), Some("answered"));
    }

    #[test]
    fn redirects_may_be_stale_while_redis_cannot_be_asked() {
        let away = [window(9000, 30_000, &[Effect::EdgeBlind])];
        // Seen, noticed and stale: 4.2 s after the acknowledgement.
        assert_eq!(judged(&away, 14_000, redirect()), None);
        assert_eq!(judged(&away, 15_000, redirect()), Some("redirect"));
        // The fallback knows better about bad news.
        let away = [window(500, 30_000, &[Effect::EdgeBlind])];
        assert_eq!(judged(&away, 3000, Answer::Unknown), None);
        assert_eq!(judged(&away, 4000, Answer::Unknown), Some("bad-news"));
        // Long before the change.
        let away = [window(500, 5000, &[Effect::EdgeBlind])];
        assert_eq!(judged(&away, 11_200, redirect()), Some("redirect"));
    }

    #[test]
    fn redirects_are_old_until_changes_reach_redis() {
        let cut = [window(9000, 30_000, &[Effect::Unpublished])];
        assert_eq!(judged(&cut, 34_000, redirect()), None);
        assert_eq!(judged(&cut, 35_100, redirect()), Some("redirect"));
        // It was seen before.
        let later = [window(12_000, 30_000, &[Effect::Unpublished])];
        assert_eq!(judged(&later, 20_000, redirect()), Some("redirect"));
        // Two faults in a row.
        let both = [
            cut[0].clone(),
            window(32_000, 40_000, &[Effect::Unpublished]),
        ];
        assert_eq!(judged(&both, 44_000, redirect()), None);
        // Bad news only for as long as a worker may think that Redis knows.
        let cut = [window(500, 30_000, &[Effect::Unpublished])];
        assert_eq!(judged(&cut, 7000, Answer::Unknown), None);
        assert_eq!(judged(&cut, 7200, Answer::Unknown), Some("bad-news"));
    }

    #[test]
    fn old_data_come_back_for_a_moment() {
        let back = [window(20_000, 21_000, &[Effect::Rewound])];
        assert_eq!(judged(&back, 19_000, redirect()), Some("redirect"));
        assert_eq!(judged(&back, 25_000, redirect()), None);
        assert_eq!(judged(&back, 25_000, Answer::Unknown), None);
        assert_eq!(judged(&back, 26_100, redirect()), Some("redirect"));
        assert_eq!(judged(&back, 27_100, Answer::Unknown), Some("bad-news"));
        // Lost changes can't be published again while Redis is away.
        let both = [
            window(20_500, 30_000, &[Effect::Unpublished]),
            back[0].clone(),
        ];
        for both in [both.clone(), [both[1].clone(), both[0].clone()]] {
            assert_eq!(judged(&both, 34_000, redirect()), None);
            assert_eq!(judged(&both, 35_100, redirect()), Some("redirect"));
        }
    }

    #[test]
    fn without_a_fallback_only_settled_links_must_redirect() {
        let away = [window(
            3000,
            9000,
            &[Effect::NoFallback, Effect::Unpublished],
        )];
        assert_eq!(judged(&away, 5000, Answer::Unavailable), Some("available"));
        assert_eq!(judged(&away, 10_050, Answer::Unavailable), None);
        let both = [away[0].clone(), window(4000, 8000, &[Effect::EdgeBlind])];
        assert_eq!(judged(&both, 5000, Answer::Unavailable), None);
        assert_eq!(
            judged(&both, 20_000, Answer::Unavailable),
            Some("available")
        );
    }
}
