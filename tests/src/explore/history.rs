//! The states of each code, when they were asked for and acknowledged, and the answers of visits.

use std::time::Duration;

/// A moment: the time since the beginning of the schedule.
pub type Moment = Duration;

/// The state of a link or campaign.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// There is none, or its time has not come: 404.
    Unknown,
    /// It redirects: a link to this target, the link of a campaign to the campaign's with this value, a
    /// campaign to this prefix of targets.
    Live(String),
    /// It is paused or revoked: 410.
    Gone,
}

/// A state that a client asked for.
#[derive(Clone, Debug)]
pub struct Version {
    /// The state.
    pub state: State,
    /// The moment before the request was sent: the state is not older.
    pub sent: Moment,
    /// The moment after it was acknowledged: it is not younger. None as long as no request for it was
    /// answered.
    pub acknowledged: Option<Moment>,
    /// Set when the answer said that Redis has it.
    pub published: bool,
}

/// The end of a state.
#[derive(Clone, Copy, Debug)]
pub struct End {
    /// The moment at which the next state was acknowledged.
    pub at: Moment,
    /// Set when the answer said that Redis has the next state.
    pub published: bool,
}

/// The states of a link or a campaign, the first of which is that there is none.
#[derive(Clone, Debug)]
pub struct History {
    /// The states, in their order.
    pub versions: Vec<Version>,
    /// Set for a link whose state depends on the time of day.
    pub is_timed: bool,
}

impl Default for History {
    fn default() -> Self {
        let first = Version {
            state: State::Unknown,
            sent: Moment::ZERO,
            acknowledged: Some(Moment::ZERO),
            published: true,
        };
        Self {
            versions: vec![first],
            is_timed: false,
        }
    }
}

impl History {
    /// The last state.
    ///
    /// # Panics
    /// Never: there is a first one.
    pub fn last(&self) -> &Version {
        self.versions.last().expect("the first version")
    }

    /// Notes that a state is about to be asked for.
    pub fn ask(&mut self, state: State, sent: Moment) {
        self.versions.push(Version {
            state,
            sent,
            acknowledged: None,
            published: false,
        });
    }

    /// Notes that the last state was acknowledged.
    ///
    /// # Panics
    /// Never: there is a first one.
    pub fn acknowledge(&mut self, at: Moment, published: bool) {
        let last = self.versions.last_mut().expect("the first version");
        last.acknowledged = Some(at);
        last.published = published;
    }

    /// Notes that time brings a state at about this moment, within `tolerance`: Redis has it if it has the record.
    pub fn expect(&mut self, state: State, at: Moment, tolerance: Duration) {
        let published = self.last().published;
        self.ask(state, at.saturating_sub(tolerance));
        self.acknowledge(at + tolerance, published);
    }

    /// The versions that may have been true by `moment`, each with its end, if it is certainly over.
    pub fn until(&self, moment: Moment) -> impl Iterator<Item = (&Version, Option<End>)> {
        let next = self.versions.iter().skip(1).map(|next| {
            next.acknowledged.map(|at| End {
                at,
                published: next.published,
            })
        });
        let over = next.chain([None]);
        self.versions
            .iter()
            .zip(over)
            .filter(move |(version, _)| version.sent <= moment)
    }
}

/// The answer that a visitor got.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// A redirect to a target.
    Redirect(String),
    /// 404.
    Unknown,
    /// 410.
    Gone,
    /// 503.
    Unavailable,
    /// Another status.
    Other(u16),
    /// None: the connection broke or was refused.
    Broken(String),
}

/// One visit.
#[derive(Clone, Debug)]
pub struct Visit {
    /// The place of the code in the list of all.
    pub subject: usize,
    /// The moment before the request.
    pub begin: Moment,
    /// The moment after the answer.
    pub end: Moment,
    /// The answer.
    pub answer: Answer,
    /// `$shortlink_outcome/$shortlink_source` of nginx.
    pub edge: String,
}
