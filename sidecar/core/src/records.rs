//! Packed records of many links: the wanted ones, and a comparison with those found in Redis.
//!
//! A walk through millions of links allocates no value for each: the store writes the wanted
//! records into one piece of memory, and the records in Redis are compared in place.

use jiff::Timestamp;
use vocabulary::record::MAX_REVISION;
use vocabulary::{
    CampaignLinkRecord, Code, Found, Instead, LinkRecord, MissReason, Phase, Plan, Record,
};

use crate::ended::{EndedDays, Stay};
use crate::link::{Link, since_1970};

/// The records that links should have in Redis at one moment.
#[derive(Clone, Debug)]
pub struct Records {
    now_s: u64,
    text: Vec<u8>,
    entries: Vec<Entry>,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    code: Code,
    revision: u64,
    /// The second in which the link has ended, if it has.
    ended_s: Option<u64>,
    /// End of its record, which begins at the end of the one before.
    end: usize,
}

/// A record of [`Records`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wanted<'a> {
    /// The link's code.
    pub code: Code,
    /// The link's revision.
    pub revision: u64,
    /// The second in which the link has ended, if it has.
    pub ended_s: Option<u64>,
    /// The record.
    pub text: &'a [u8],
}

impl Records {
    /// None yet; those that are added are right at a moment.
    pub fn at(now: Timestamp) -> Self {
        Self {
            now_s: since_1970(now),
            text: Vec::new(),
            entries: Vec::new(),
        }
    }

    /// The second at which the records are right.
    pub fn now_s(&self) -> u64 {
        self.now_s
    }

    /// Reserves capacity for so many records and bytes.
    pub fn reserve(&mut self, records: usize, bytes: usize) {
        self.entries.reserve(records);
        self.text.reserve(bytes);
    }

    /// Adds the record of a link.
    pub fn push(&mut self, link: &Link) {
        let now = Timestamp::from_second(self.now_s.cast_signed()).unwrap_or(Timestamp::MAX);
        self.push_record(link.code, &link.record(), link.ended_s(now));
    }

    /// Adds a record, of a link that was revoked or has expired in a second or has not. An expired link gets the short
    /// form: the answer is the same, and the target would only waste memory. One that redirects after its expiry keeps its
    /// own, as do links of campaigns: these have the target.
    pub fn push_record(&mut self, code: Code, record: &Record<'_>, ended_s: Option<u64>) {
        let revision = match record {
            Record::Link(link) => link.revision,
            Record::CampaignLink(link) => link.revision,
            Record::Revoked { revision } => *revision,
            Record::Unknown { .. } => 0,
        };
        match record {
            Record::Link(link)
                if link.validity.at(self.now_s) == Phase::Over && !redirects_when_over(link) =>
            {
                Record::Revoked { revision }.write(&mut self.text);
            }
            record => record.write(&mut self.text),
        }
        self.entries.push(Entry {
            code,
            revision,
            ended_s,
            end: self.text.len(),
        });
    }

    /// Returns the number of records.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Reports whether there are no records.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The record at a place, which must be below [`Records::len`].
    pub fn get(&self, place: usize) -> Wanted<'_> {
        let entry = self.entries[place];
        let start = match place.checked_sub(1) {
            Some(before) => self.entries[before].end,
            None => 0,
        };
        Wanted {
            code: entry.code,
            revision: entry.revision,
            ended_s: entry.ended_s,
            text: &self.text[start..entry.end],
        }
    }

    /// All records, in order.
    pub fn iter(&self) -> impl Iterator<Item = Wanted<'_>> {
        (0..self.len()).map(|place| self.get(place))
    }

    /// The records at some places.
    pub fn some(&self, places: impl IntoIterator<Item = usize>) -> Self {
        let mut some = Self {
            now_s: self.now_s,
            text: Vec::new(),
            entries: Vec::new(),
        };
        for place in places {
            some.add(self.get(place));
        }
        some
    }

    /// Adds others, which are right at the same moment or a later one.
    pub fn extend(&mut self, others: &Self) {
        for wanted in others.iter() {
            self.add(wanted);
        }
    }

    fn add(&mut self, wanted: Wanted<'_>) {
        self.text.extend_from_slice(wanted.text);
        self.entries.push(Entry {
            code: wanted.code,
            revision: wanted.revision,
            ended_s: wanted.ended_s,
            end: self.text.len(),
        });
    }

    /// The life of the record at a place.
    pub fn stay(&self, place: usize, days: EndedDays) -> Stay {
        days.stay(self.entries[place].ended_s, self.now_s)
    }

    /// Returns the number of links that need no record any more.
    pub fn count_over(&self, days: EndedDays) -> u64 {
        let places = 0..self.len();
        let over = places.filter(|&place| self.stay(place, days) == Stay::Over);
        over.count() as u64
    }

    /// Compares the record at a place with the value found under its key.
    pub fn drift(&self, place: usize, standing: Standing<'_>, days: EndedDays) -> Option<Drift> {
        let wanted = self.get(place);
        let drift = drift_of(wanted.text, wanted.revision, self.now_s, standing);
        match drift {
            drift if self.stay(place, days) != Stay::Over => drift,
            Some(Drift::Missing) => None,
            None | Some(Drift::Long) => Some(Drift::Needless),
            drift => drift,
        }
    }
}

/// Reports whether a record has a target for the time after its validity.
fn redirects_when_over(link: &LinkRecord<'_>) -> bool {
    let plan = link.is_plan.then(|| Plan::from_checked(link.target));
    plan.is_some_and(|plan| plan.instead(Instead::Expired).is_some())
}

/// The value found under a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing<'a> {
    /// Nothing.
    Nothing,
    /// A text, a record or not.
    Text(&'a [u8]),
    /// Something that is no text.
    OtherType,
}

impl<'a> Standing<'a> {
    /// Parses the record, or returns the reason why there is none.
    pub fn record(self) -> Found<'a> {
        match self {
            Self::Nothing => Err(MissReason::Absent),
            Self::Text(text) => Ok(Record::parse(text)?),
            Self::OtherType => Err(MissReason::Unreadable),
        }
    }
}

/// The way in which the value under a link's key differs from the link's record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Drift {
    /// There is no value.
    Missing,
    /// The negative record of an unknown code.
    Negative,
    /// An earlier revision.
    Older,
    /// A revision that SQL does not have yet, or not any more.
    Newer(u64),
    /// The same revision with another text, or something that is no record.
    Different,
    /// Something that is no text.
    OtherType,
    /// The same revision of a link that has expired, in another form: its answer is the same, unless its campaign has a
    /// target for that.
    Long,
    /// A record of a link that ended so long ago that it needs none: its answer is the same.
    Needless,
}

impl Drift {
    /// Reports whether the value gives the same answer as the record.
    pub fn is_harmless(self) -> bool {
        matches!(self, Self::Long | Self::Needless)
    }
}

/// Compares the value under a key with the record wanted there at a second.
pub fn drift_of(wanted: &[u8], revision: u64, now_s: u64, standing: Standing<'_>) -> Option<Drift> {
    let text = match standing {
        Standing::Text(text) if text == wanted => return None,
        Standing::Text(text) => text,
        Standing::Nothing => return Some(Drift::Missing),
        Standing::OtherType => return Some(Drift::OtherType),
    };
    Some(match first_fields(text) {
        Some((b"404", _)) => Drift::Negative,
        // The publishing script trusts no value that it can't compare, either.
        None => Drift::Different,
        Some((_, standing)) if standing >= MAX_REVISION => Drift::Different,
        Some((_, standing)) if standing > revision => Drift::Newer(standing),
        Some((_, standing)) if standing < revision => Drift::Older,
        Some(_) => match (Record::parse(wanted), Record::parse(text)) {
            (
                Ok(Record::Revoked { .. }),
                Ok(
                    Record::Link(LinkRecord { validity, .. })
                    | Record::CampaignLink(CampaignLinkRecord { validity, .. }),
                ),
            ) if validity.at(now_s) == Phase::Over => Drift::Long,
            // Earlier versions shortened these, too.
            (
                Ok(Record::CampaignLink(CampaignLinkRecord { validity, .. })),
                Ok(Record::Revoked { .. }),
            ) if validity.at(now_s) == Phase::Over => Drift::Long,
            _ => Drift::Different,
        },
    })
}

/// The kind and the revision of a record of any version; `None` when it is no record.
pub fn first_fields(text: &[u8]) -> Option<(&[u8], u64)> {
    let mut fields = text.split(|&byte| byte == b' ');
    let version = fields.next()?;
    let kind = fields.next()?;
    if let Ok(Record::CampaignLink(link)) = Record::parse(text)
        && version != b"1"
    {
        // The compact record of a campaign's link has neither.
        return Some((version, link.revision));
    }
    let revision = fields.next()?;
    if version.is_empty() || kind.is_empty() || !revision.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let revision = std::str::from_utf8(revision).ok()?;
    // More digits than a number has are those of a revision that nothing has.
    (!revision.is_empty()).then(|| (kind, revision.parse().unwrap_or(u64::MAX)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{link, moment};

    #[test]
    fn what_stands_is_compared_by_revision_and_text() {
        let mut records = Records::at(moment("2026-06-01T00:00:00Z"));
        let live = crate::link::Link {
            revision: 3,
            ..link("abc")
        };
        records.push(&live);
        let mut dead = live.clone();
        dead.valid_until = crate::link::Second::at(moment("2026-05-01T00:00:00Z"));
        dead.code = "abd".parse().expect("a code");
        records.push(&dead);
        assert_eq!(records.get(0).text, b"1 302 3 0 https://example.com/a");
        assert_eq!(records.get(1).text, b"1 410 3");
        for (place, standing, drift) in [
            (0, "1 302 3 0 https://example.com/a", None),
            (0, "1 302 3 0 https://example.com/b", Some(Drift::Different)),
            (0, "1 302 2 0 https://example.com/a", Some(Drift::Older)),
            (0, "1 410 4", Some(Drift::Newer(4))),
            (0, "2 X 5 what follows", Some(Drift::Newer(5))),
            (0, "1 404 0", Some(Drift::Negative)),
            (0, "1 404 7", Some(Drift::Negative)),
            (0, "1 410 99999999999999999999999", Some(Drift::Different)),
            (0, "1 410 9007199254740992", Some(Drift::Different)),
            (0, "no record", Some(Drift::Different)),
            (0, "", Some(Drift::Different)),
            (0, "c4f Wien", Some(Drift::Older)),
            (0, "c4f x 5 0", Some(Drift::Newer(5))),
            (1, "1 410 3", None),
            (1, "1 302 3 1 https://example.com/a", Some(Drift::Long)),
            (1, "1 302 3 0 https://example.com/a", Some(Drift::Different)),
        ] {
            assert_eq!(
                records.drift(place, Standing::Text(standing.as_bytes()), EndedDays(0)),
                drift,
                "{standing}"
            );
        }
        for (standing, drift) in [
            (Standing::Nothing, Drift::Missing),
            (Standing::OtherType, Drift::OtherType),
        ] {
            assert_eq!(records.drift(0, standing, EndedDays(7)), Some(drift));
        }
        let one = records.some([1]);
        assert_eq!((one.len(), one.get(0)), (1, records.get(1)));
    }

    #[test]
    fn a_link_needs_no_record_some_days_after_its_end() {
        let day = |day: &str| moment(&format!("2026-05-{day}T00:00:00Z"));
        let ended = [
            (None, None, None, false),
            (None, Some(day("20")), None, true),
            (Some(day("20")), None, None, true),
            (Some(day("25")), None, None, false),
            // A paused link can be resumed, until it expires.
            (None, None, Some(day("01")), false),
            (None, Some(day("20")), Some(day("01")), true),
        ];
        let mut records = Records::at(moment("2026-06-01T00:00:00Z"));
        for (revoked_at, until, paused_at, _) in ended {
            records.push(&Link {
                revision: 3,
                revoked_at,
                paused_at,
                valid_until: until.and_then(crate::link::Second::at),
                ..link("abc")
            });
        }
        let days = EndedDays(10);
        assert_eq!(records.count_over(days), 3);
        for (place, (.., is_over)) in ended.into_iter().enumerate() {
            let drift = |text: &str| records.drift(place, Standing::Text(text.as_bytes()), days);
            let stands = String::from_utf8(records.get(place).text.to_vec()).expect("a text");
            let (missing, same) = match is_over {
                true => (None, Some(Drift::Needless)),
                false => (Some(Drift::Missing), None),
            };
            assert_eq!(records.drift(place, Standing::Nothing, days), missing);
            assert_eq!(drift(&stands), same, "{stands}");
            // An earlier state would redirect, whether the link needs a record or not.
            let older = drift("1 302 2 0 https://example.com/a");
            assert_eq!(older, Some(Drift::Older));
        }
    }
}
