//! Campaigns: many links with one target, but for what differs from recipient to recipient.
//!
//! A link of a campaign keeps its parameters alone. Where it leads, how it redirects, and whether
//! it does at all is said by the campaign, so that one write changes millions of links.

use jiff::Timestamp;
use url::form_urlencoded;
use vocabulary::parameters::{MAX_PARAMETERS, Parameters, encode_parameters};
use vocabulary::template::{ExpandError, Place, Template};
use vocabulary::{CampaignId, Code, LinkRecord, Phase, Record, RedirectStatus, Validity};

use crate::domain::target::{OwnHosts, Target, TargetError, TargetPolicy};

/// The name that stands for a link's code in a template.
const CODE: &str = "code";

/// The longest name of a parameter.
const LONGEST_NAME: usize = 32;

/// A target with places for parameters.
#[derive(Clone, PartialEq, Eq)]
pub struct CampaignTarget {
    /// The template as it stands in the record, with numbers for names.
    template: String,
    /// The names of the parameters, in the order in which links keep their values.
    names: Vec<String>,
}

impl CampaignTarget {
    /// Reads a target with names in braces. `declared` names come first, in their order, whether
    /// they occur or not.
    ///
    /// # Errors
    /// When a name is none, stands where it must not, or the rest is no good target.
    pub fn parse(
        text: &str,
        declared: &[String],
        policy: TargetPolicy,
        own: &OwnHosts,
    ) -> Result<Self, CampaignTargetError> {
        let mut names: Vec<String> = Vec::new();
        for name in declared {
            add_name(&mut names, name)?;
        }
        // While the URL is read each place is a word that a URL parser leaves as it is.
        let word = unused_word(text);
        let mut url = String::with_capacity(text.len());
        let mut places = Vec::new();
        let mut rest = text;
        while let Some((before, after)) = rest.split_once('{') {
            let (name, behind) = after.split_once('}').ok_or(CampaignTargetError::Brace)?;
            if before.contains('}') {
                return Err(CampaignTargetError::Brace);
            }
            let place = if name == CODE {
                CODE.to_owned()
            } else {
                add_name(&mut names, name)?.to_string()
            };
            url.push_str(before);
            url.push_str(&format!("{word}{}z", places.len()));
            places.push(place);
            rest = behind;
        }
        if rest.contains('}') {
            return Err(CampaignTargetError::Brace);
        }
        url.push_str(rest);
        let target = Target::parse(&url, policy, own)?;
        let mut template = target.as_str().to_owned();
        // Backwards, so that the word of place 1 is not taken for the beginning of that of 10.
        for (number, place) in places.iter().enumerate().rev() {
            let word = format!("{word}{number}z");
            if template.matches(&word).count() != 1 {
                return Err(CampaignTargetError::Authority);
            }
            template = template.replace(&word, &format!("{{{place}}}"));
        }
        Template::parse(template.as_bytes()).map_err(|_error| CampaignTargetError::Authority)?;
        Ok(Self { template, names })
    }

    /// Takes what [`CampaignTarget::template`] and [`CampaignTarget::names`] were earlier.
    pub fn from_stored(template: String, names: Vec<String>) -> Self {
        Self { template, names }
    }

    /// The template as it stands in the record.
    pub fn template(&self) -> &str {
        &self.template
    }

    /// The names of the parameters, in the order in which links keep their values.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// The target with names in braces, as it was written.
    pub fn with_names(&self) -> String {
        let mut text = self.template.clone();
        for place in Template::from_checked(self.template.as_bytes()).places() {
            if let Place::Parameter(number) = place
                && let Some(name) = self.names.get(number)
            {
                text = text.replace(&format!("{{{number}}}"), &format!("{{{name}}}"));
            }
        }
        text
    }

    /// Where a link leads.
    ///
    /// # Errors
    /// When the link has not all parameters, or its target would not be served.
    pub fn expand(&self, code: &Code, values: &ParameterValues) -> Result<Target, ExpandError> {
        let mut target = Vec::new();
        let values = Parameters::from_checked(values.0.as_bytes());
        Template::from_checked(self.template.as_bytes()).expand(code, values, &mut target)?;
        // It was made of texts and is ASCII.
        String::from_utf8(target)
            .map(Target::from_stored)
            .map_err(|_error| ExpandError::Target)
    }
}

impl std::fmt::Debug for CampaignTarget {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "CampaignTarget({} bytes)", self.template.len())
    }
}

/// Adds a name unless it is there; answers its place.
fn add_name(names: &mut Vec<String>, name: &str) -> Result<usize, CampaignTargetError> {
    if let Some(place) = names.iter().position(|known| known == name) {
        return Ok(place);
    }
    let mut characters = name.chars();
    let is_name = characters
        .next()
        .is_some_and(|first| first.is_ascii_alphabetic())
        && characters.all(|character| character.is_ascii_alphanumeric() || character == '_')
        && name.len() <= LONGEST_NAME
        && name != CODE;
    if !is_name {
        return Err(CampaignTargetError::Name {
            name: name.chars().take(LONGEST_NAME).collect(),
        });
    }
    if names.len() == MAX_PARAMETERS {
        return Err(CampaignTargetError::TooMany);
    }
    names.push(name.to_owned());
    Ok(names.len() - 1)
}

/// A word of lower case letters that does not occur in a text.
fn unused_word(text: &str) -> String {
    let mut word = String::from("qz");
    while text.contains(&word) {
        word.push('q');
        word.push('z');
    }
    word
}

/// Why a target with places is refused, in words for whoever sent it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CampaignTargetError {
    /// A brace belongs to no place.
    #[error("has a brace that belongs to no place; write %7B and %7D for braces themselves")]
    Brace,
    /// A name of a parameter is none.
    #[error(
        "{name:?} can't be the name of a parameter: a letter and up to 31 letters, digits and _, \
         but not \"code\""
    )]
    Name {
        /// The name.
        name: String,
    },
    /// There are too many parameters.
    #[error("has more than {MAX_PARAMETERS} parameters")]
    TooMany,
    /// A place stands before the path.
    #[error("must have its places behind the host")]
    Authority,
    /// The rest is no good target.
    #[error(transparent)]
    Target(#[from] TargetError),
}

/// The values of a link's parameters, encoded and in the order of the campaign's names.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct ParameterValues(String);

impl ParameterValues {
    /// Encodes values.
    ///
    /// # Errors
    /// When one can't be put into a URL, or they are too long; the place of the value is told
    /// where there is one.
    pub fn encode(values: &[&str]) -> Result<Self, vocabulary::parameters::ParametersError> {
        let mut text = Vec::new();
        encode_parameters(values, &mut text)?;
        // Only unreserved characters, escapes and `&`.
        Ok(Self(String::from_utf8(text).unwrap_or_default()))
    }

    /// Takes what [`ParameterValues::as_str`] was earlier.
    pub fn from_stored(text: String) -> Self {
        Self(text)
    }

    /// The values as they stand in a link's record.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The values as they were before they were encoded.
    pub fn decoded(&self) -> Vec<String> {
        if self.0.is_empty() {
            return Vec::new();
        }
        // What a form means by `+`, `=` and `&` is encoded in a value.
        let values = self.0.split('&');
        values
            .map(|value| {
                let decoded = form_urlencoded::parse(value.as_bytes()).next();
                decoded.map_or_else(String::new, |(text, _)| text.into_owned())
            })
            .collect()
    }
}

impl std::fmt::Debug for ParameterValues {
    /// Shows no more than the length: parameters are recipients' data.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ParameterValues({} bytes)", self.0.len())
    }
}

/// What a campaign's links answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CampaignState {
    /// They redirect.
    Live,
    /// They will: 404 until then.
    Scheduled,
    /// They are held back: 410 until it is resumed.
    Paused,
    /// Its time has passed: 410.
    Expired,
    /// It was revoked, which can't be undone: 410.
    Revoked,
}

impl CampaignState {
    /// Every state.
    pub const ALL: [Self; 5] = [
        Self::Live,
        Self::Scheduled,
        Self::Paused,
        Self::Expired,
        Self::Revoked,
    ];

    /// The state's name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Live => "live",
            Self::Scheduled => "scheduled",
            Self::Paused => "paused",
            Self::Expired => "expired",
            Self::Revoked => "revoked",
        }
    }
}

/// A campaign.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Campaign {
    /// Its id; the store gives it.
    pub id: CampaignId,
    /// What people call it.
    pub name: String,
    /// Where its links lead.
    pub target: CampaignTarget,
    /// How they redirect.
    pub redirect_status: RedirectStatus,
    /// Whether the visitor's query is passed on.
    pub forward_query: bool,
    /// 1 for a new campaign, one more for each change.
    pub revision: u64,
    /// When its links redirect.
    pub validity: Validity,
    /// Since when it is held back.
    pub paused_at: Option<Timestamp>,
    /// When it was revoked.
    pub revoked_at: Option<Timestamp>,
    /// When it was made.
    pub created_at: Timestamp,
    /// When it was changed last.
    pub updated_at: Timestamp,
    /// The id of the API key that asked for it.
    pub created_by: String,
    /// What the caller calls it.
    pub external_id: Option<String>,
    /// What people want to remember of it.
    pub note: Option<String>,
}

/// What to change of a campaign. What is `None` stays as it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CampaignChange {
    /// Another name.
    pub name: Option<String>,
    /// Another target; it has the names of the old one, and no others.
    pub target: Option<CampaignTarget>,
    /// Another redirect status.
    pub redirect_status: Option<RedirectStatus>,
    /// Whether the query is passed on.
    pub forward_query: Option<bool>,
    /// Another time.
    pub validity: Option<Validity>,
    /// To be held back, or no more.
    pub paused: Option<bool>,
    /// Another note, or `Some(None)` for none.
    pub note: Option<Option<String>>,
}

/// What became of an attempt to change a campaign.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CampaignEdit {
    /// The campaign as it is to be stored, with its next revision.
    Changed(Campaign),
    /// The campaign was as it should be already.
    Unchanged(Campaign),
    /// The campaign is revoked and can't be changed.
    Refused,
}

impl Campaign {
    /// What its links answer at a moment.
    pub fn state(&self, now: Timestamp) -> CampaignState {
        let second = u64::try_from(now.as_second()).unwrap_or_default();
        if self.revoked_at.is_some() {
            CampaignState::Revoked
        } else if self.paused_at.is_some() {
            CampaignState::Paused
        } else {
            match self.validity.at(second) {
                Phase::Early => CampaignState::Scheduled,
                Phase::Live => CampaignState::Live,
                Phase::Over => CampaignState::Expired,
            }
        }
    }

    /// Applies a change.
    pub fn change(self, change: &CampaignChange, now: Timestamp) -> CampaignEdit {
        if self.revoked_at.is_some() {
            return CampaignEdit::Refused;
        }
        let paused_at = match change.paused {
            Some(true) => self.paused_at.or(Some(now)),
            Some(false) => None,
            None => self.paused_at,
        };
        let change = change.clone();
        let changed = Self {
            name: change.name.unwrap_or_else(|| self.name.clone()),
            target: change.target.unwrap_or_else(|| self.target.clone()),
            redirect_status: change.redirect_status.unwrap_or(self.redirect_status),
            forward_query: change.forward_query.unwrap_or(self.forward_query),
            validity: change.validity.unwrap_or(self.validity),
            note: change.note.unwrap_or_else(|| self.note.clone()),
            paused_at,
            ..self.clone()
        };
        if changed == self {
            return CampaignEdit::Unchanged(self);
        }
        CampaignEdit::Changed(changed.next_revision(now))
    }

    /// Revokes the campaign; a revoked one stays as it is.
    pub fn revoke(self, now: Timestamp) -> CampaignEdit {
        if self.revoked_at.is_some() {
            return CampaignEdit::Unchanged(self);
        }
        let revoked = Self {
            revoked_at: Some(now),
            ..self
        };
        CampaignEdit::Changed(revoked.next_revision(now))
    }

    /// The record that stands for the campaign in Redis.
    pub fn record(&self) -> Record<'_> {
        if self.revoked_at.is_some() || self.paused_at.is_some() {
            return Record::Revoked {
                revision: self.revision,
            };
        }
        Record::Link(LinkRecord {
            status: self.redirect_status,
            forwards_query: self.forward_query,
            revision: self.revision,
            validity: self.validity,
            target: self.target.template.as_bytes(),
        })
    }

    fn next_revision(self, now: Timestamp) -> Self {
        Self {
            revision: self.revision + 1,
            // A clock that was set back must not make it younger than its last change.
            updated_at: now.max(self.updated_at),
            ..self
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::domain::link::tests::moment;

    /// A campaign with one parameter, and no id of its own yet.
    pub(crate) fn campaign() -> Campaign {
        Campaign {
            id: CampaignId::FIRST,
            name: "Spring".to_owned(),
            target: CampaignTarget::from_stored(
                "https://example.com/{0}".to_owned(),
                vec!["member".to_owned()],
            ),
            redirect_status: RedirectStatus::Found,
            forward_query: false,
            revision: 1,
            validity: Validity::ALWAYS,
            paused_at: None,
            revoked_at: None,
            created_at: moment("2026-01-01T00:00:00Z"),
            updated_at: moment("2026-01-01T00:00:00Z"),
            created_by: "key".to_owned(),
            external_id: None,
            note: None,
        }
    }

    fn parse(text: &str, declared: &[&str]) -> Result<CampaignTarget, CampaignTargetError> {
        let declared: Vec<String> = declared.iter().map(|&name| name.to_owned()).collect();
        let policy = TargetPolicy::default();
        CampaignTarget::parse(text, &declared, policy, &OwnHosts::default())
    }

    #[test]
    fn names_become_places_and_names_again() {
        for (text, template, names) in [
            (
                "https://shop.example.com/p?m={member}&c={code}",
                "https://shop.example.com/p?m={0}&c={code}",
                &["member"][..],
            ),
            (
                "https://e.example/{a}/{b}/{a}#{c}",
                "https://e.example/{0}/{1}/{0}#{2}",
                &["a", "b", "c"],
            ),
            ("https://e.example", "https://e.example/", &[]),
            (
                "HTTPS://E.example/ü?x={q}",
                "https://e.example/%C3%BC?x={0}",
                &["q"],
            ),
            // Twelve places: the word of the first is the beginning of no other's.
            (
                "https://e.example/{a}{b}{c}{d}{e}{f}{g}{h}{i}{j}{k}{l}",
                "https://e.example/{0}{1}{2}{3}{4}{5}{6}{7}{8}{9}{10}{11}",
                &["a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l"],
            ),
            (
                "https://e.example/qz0z/{a}",
                "https://e.example/qz0z/{0}",
                &["a"],
            ),
        ] {
            let target = parse(text, &[]).expect(text);
            assert_eq!(target.template(), template);
            assert_eq!(target.names(), names);
            let again = parse(&target.with_names(), &[]).expect(text);
            assert_eq!(again, target);
        }
        let declared = parse("https://e.example/{b}", &["a", "b"]).expect("a target");
        assert_eq!(declared.template(), "https://e.example/{1}");
        assert_eq!(declared.names(), ["a", "b"]);
    }

    #[test]
    fn places_that_could_change_the_host_and_braces_are_refused() {
        for text in [
            "https://{a}/",
            "https://{a}.example.com/",
            "https://example.com{a}/",
            "https://example.com:{a}/",
            "https://{a}@example.com/",
            "{a}://example.com/",
            "https://example.com/{",
            "https://example.com/}",
            "https://example.com/{}",
            "https://example.com/{a",
            "https://example.com/a}{b}",
            "https://example.com/{a b}",
            "https://example.com/{1a}",
            "https://example.com/{{a}}",
            "javascript:{a}",
        ] {
            assert!(parse(text, &[]).is_err(), "{text}");
        }
        assert!(parse("https://example.com/", &["code"]).is_err());
        let many: String = (0..17).map(|n| format!("{{p{n}}}")).collect();
        let many = format!("https://example.com/{many}");
        assert_eq!(parse(&many, &[]), Err(CampaignTargetError::TooMany));
    }

    #[test]
    fn a_link_leads_where_the_template_says_and_nowhere_else() {
        let target = parse("https://e.example/p?m={m}&c={code}", &[]).expect("a target");
        let code = "abc".parse().expect("a code");
        let values = ParameterValues::encode(&["ü&x=1#/\\"]).expect("a value");
        let expanded = target.expand(&code, &values).expect("a link");
        assert_eq!(
            expanded.as_str(),
            "https://e.example/p?m=%C3%BC%26x%3D1%23%2F%5C&c=abc"
        );
        let none = ParameterValues::default();
        assert_eq!(target.expand(&code, &none), Err(ExpandError::Missing(0)));
    }
}
