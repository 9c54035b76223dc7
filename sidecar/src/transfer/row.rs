//! Converts a row to a link, or explains why it is invalid.

use std::collections::HashMap;
use std::fmt::Display;

use jiff::Timestamp;
use serde_json::{Map, Value};
use shortlink_api::faults::FieldError;
use shortlink_api::fields::Fields;
use shortlink_api::kinds::Shape;
use shortlink_api::link::LinkSettings;
use shortlink_api::members::{Members, Usage};
use shortlink_core::campaign::{ClickParameter, ParameterValues};
use shortlink_core::codes::reserved::ReservedWords;
use shortlink_core::codes::strategy::CodeOrigin;
use shortlink_core::link::{Change, Destination, Link, is_never_valid};
use shortlink_core::plan::{Plan, PlanChange};
use shortlink_core::short_url::domain_name;
use shortlink_core::target::{OwnHosts, Target, TargetPolicy};
use vocabulary::record::MAX_REVISION;
use vocabulary::{CampaignId, Code, CodeRules, Parameters, RedirectStatus, Verdict};

use super::columns::{Cells, Column};
use super::moment::{self, Moment};

/// The most bytes that a row may have: a target, and a few long texts beside it.
pub const MAX_ROW: usize = 1 << 20;

/// The checks of rows, and the members of links that rows lack.
#[derive(Clone, Debug)]
pub struct Checks {
    /// The rules for codes.
    pub rules: CodeRules,
    /// The words that can't be codes.
    pub reserved: ReservedWords,
    /// The rules for targets.
    pub policy: TargetPolicy,
    /// The hosts that targets may not have.
    pub own: OwnHosts,
    /// The redirect status of links without one.
    pub redirect_status: RedirectStatus,
    /// The creator of the links.
    pub created_by: String,
    /// The time of the import.
    pub now: Timestamp,
    /// The known campaigns, each with its number of parameters.
    pub campaigns: HashMap<CampaignId, usize>,
    /// The leading segments that are removed from paths of several segments.
    pub prefix: String,
    /// The separator of tags in a text.
    pub tag_delimiter: char,
}

impl Checks {
    /// Converts a row to a link.
    ///
    /// # Errors
    /// Fails when nginx would not resolve the link, or not as the row specifies it.
    pub fn link(&self, cells: &Cells) -> Result<Link, Refusal> {
        allowed(cells)?;
        let code = self.code(cells)?;
        let destination = self.destination(cells)?;
        let settings = Change {
            plan: self.plan(cells, &destination)?,
            ..self.settings(cells)?
        };
        let paused_at = time(cells, Column::PAUSED)?;
        let revoked_at = time(cells, Column::REVOKED)?;
        let revision = number(cells, Column::REVISION, MAX_REVISION)?;
        let strategy = strategy(cells)?;
        Ok(Link {
            // A link has a revision of its own for being paused or revoked.
            revision: revision
                .unwrap_or(1 + u64::from(paused_at.is_some()) + u64::from(revoked_at.is_some())),
            strategy,
            paused_at,
            revoked_at,
            created_at: time(cells, Column::CREATED)?.unwrap_or(self.now),
            updated_at: time(cells, Column::UPDATED)?.unwrap_or(self.now),
            ..Link::new(
                code,
                destination,
                settings,
                self.created_by.clone(),
                self.now,
            )
        })
    }

    /// Reads the settings as a request for a link has them.
    fn settings(&self, cells: &Cells) -> Result<Change, Refusal> {
        let mut members = Map::new();
        for (column, member) in Column::settings() {
            let value = self.value(cells, column)?;
            // Other services write ports and schemes into it. The code works on every domain.
            let is_ignored = |value: &Value| {
                let name = value.as_str().and_then(domain_name);
                member.name == "domain" && name.is_none()
            };
            if let Some(value) = value.filter(|value| !is_ignored(value)) {
                members.insert(member.name.to_owned(), value);
            }
        }
        let mut fields = Fields::new(members);
        let mut settings = Change::from(LinkSettings::read(&mut fields, Usage::New));
        if let Some(FieldError { pointer, detail }) = fields.faults().into_iter().next() {
            let column = pointer.split('/').nth(1).and_then(Column::setting);
            return Err(match column {
                Some(column) => Refusal::setting(column, detail),
                None => Refusal::unreadable(detail),
            });
        }
        if is_never_valid(
            settings.valid_since.flatten(),
            settings.valid_until.flatten(),
        ) {
            let problem = "validSince is not a time before the end of validity";
            return Err(Refusal::value(problem));
        }
        settings.redirect_status.get_or_insert(self.redirect_status);
        Ok(settings)
    }

    fn destination(&self, cells: &Cells) -> Result<Destination, Refusal> {
        if let Some(id) = text(cells, Column::CAMPAIGN)? {
            let known = CampaignId::parse(id.as_bytes())
                .and_then(|id| self.campaigns.get(&id).map(|parameters| (id, *parameters)));
            let (id, parameters) = known.ok_or_else(|| {
                Refusal::of_campaign(
                    "campaignId is unknown; a link without one redirects to its longUrl",
                )
            })?;
            let values = text(cells, Column::PARAMETERS)?.unwrap_or_default();
            return Parameters::parse(values.as_bytes())
                .filter(|values| values.count() == parameters)
                .map(|_values| Destination::Campaign {
                    id,
                    values: ParameterValues::from_stored(values.to_owned()),
                })
                .ok_or_else(|| {
                    Refusal::of_campaign(format!(
                        "parameters are not {parameters} encoded values separated by &"
                    ))
                });
        }
        let target = text(cells, Column::URL)?.ok_or_else(|| Refusal::absent(Column::URL))?;
        Target::parse(target, self.policy, &self.own)
            .map(Destination::Target)
            .map_err(|fault| {
                Refusal::new(
                    "targets that links may not have",
                    format!("the target {fault}"),
                )
            })
    }

    /// Reads the rules and the targets instead of answers.
    fn plan(&self, cells: &Cells, destination: &Destination) -> Result<PlanChange, Refusal> {
        let Some(given) = text(cells, Column::PLAN)? else {
            return Ok(PlanChange::default());
        };
        let change = PlanChange::of_text(given);
        let plan = Plan::of_destination(given.to_owned(), destination);
        let plan = plan.filter(|it| {
            let name = it.click_id().map(ClickParameter::check_name);
            it.fits_link() && name.is_none_or(|it| it.is_ok()) && change.text_after(None) == given
        });
        let plan = plan.ok_or_else(|| {
            let problem = "plan is not as `shortlink export` writes it";
            Refusal::new("texts that links may not have", problem)
        })?;
        for target in plan.targets() {
            Target::parse(&target, self.policy, &self.own).map_err(|fault| {
                let problem = format!("a target of the plan {fault}");
                Refusal::new("targets that links may not have", problem)
            })?;
        }
        Ok(change)
    }

    fn code(&self, cells: &Cells) -> Result<Code, Refusal> {
        let path = self
            .path(cells)
            .ok_or_else(|| Refusal::absent(Column::CODE))?;
        if path.contains(&b'/') {
            return Err(Refusal::several_segments(path));
        }
        let code = Code::parse(path)
            .map_err(|fault| Refusal::new("texts that can't be codes", fault.to_string()))?;
        if self.reserved.contain(&code) {
            return Err(Refusal {
                hint: Some("words can be taken out of codes.reserved"),
                ..Refusal::new(
                    "reserved words",
                    "the code is a reserved word (codes.reserved)",
                )
            });
        }
        match self.rules.judge(&code) {
            Verdict::Issued | Verdict::Foreign => Ok(code),
            Verdict::WrongCheck => Err(Refusal::wrong_check(&code)),
        }
    }

    /// The path of a row's short URL without the prefix, or its code: the same for most links.
    fn path<'c>(&self, cells: &'c Cells) -> Option<&'c [u8]> {
        let path = match cells.get(Column::CODE) {
            Some(code) => path(code, false),
            None => path(cells.get(Column::SHORT_URL)?, true),
        };
        let behind = path.strip_prefix(self.prefix.as_bytes());
        let path = match behind.and_then(|rest| rest.strip_prefix(b"/")) {
            Some(rest) if !self.prefix.is_empty() => rest,
            _ => path,
        };
        Some(path.strip_suffix(b"/").unwrap_or(path))
    }

    /// A row's code as it is written, shortened, to find the row.
    pub fn shown_code(&self, cells: &Cells) -> Option<String> {
        Some(shown(self.path(cells)?))
    }

    /// A setting as JSON has it.
    fn value(&self, cells: &Cells, column: Column) -> Result<Option<Value>, Refusal> {
        let Some(text) = text(cells, column)? else {
            return Ok(None);
        };
        let value = match (column.shape(), text) {
            (Shape::Moment, _) => return Ok(time(cells, column)?.map(|it| it.to_string().into())),
            (Shape::Truth, "1") => Ok(Value::Bool(true)),
            (Shape::Truth, "0") => Ok(Value::Bool(false)),
            (Shape::List, list) if list.starts_with('[') => json_list(list),
            (Shape::List, list) => {
                let items = list.split(self.tag_delimiter).map(str::trim);
                Ok(items.filter(|it| !it.is_empty()).map(Value::from).collect())
            }
            (shape, text) => shape.of_csv(text),
        };
        value
            .map(Some)
            .map_err(|expected| Refusal::setting(column, format_args!("must be {expected}")))
    }
}

/// Reads the way in which the code was chosen.
fn strategy(cells: &Cells) -> Result<Option<CodeOrigin>, Refusal> {
    let Some(name) = text(cells, Column::STRATEGY)? else {
        return Ok(None);
    };
    CodeOrigin::by_name(name).map(Some).ok_or_else(|| {
        let problem = format!("strategy is not one of {}", CodeOrigin::NAMES);
        Refusal::new("unknown strategies of codes", problem)
    })
}

/// Refuses a link that the other service does not redirect for all visitors: it would come back to
/// life, or become public.
fn allowed(cells: &Cells) -> Result<(), Refusal> {
    for column in Column::forbidding() {
        let Some(text) = text(cells, column)? else {
            continue;
        };
        let is_one_of = |words: &[&str]| words.iter().any(|it| text.eq_ignore_ascii_case(it));
        let is_false = if column.name() == "password" {
            // Any other text may be the password.
            is_one_of(&["null", "false"])
        } else {
            is_one_of(&["false", "f", "no", "n"]) || moment::parse(text) == Some(Moment::None)
        };
        if is_false == column.is_permission() {
            return Err(Refusal::forbidden(column));
        }
    }
    Ok(())
}

/// The path of a short URL, without the slash before it; a code is its own. A short URL may lack
/// its scheme.
fn path(text: &[u8], is_url: bool) -> &[u8] {
    if !text.contains(&b'/') {
        return text;
    }
    let end = text.iter().position(|it| matches!(it, b'?' | b'#'));
    let text = &text[..end.unwrap_or(text.len())];
    let scheme = text.windows(3).position(|it| it == b"://");
    let path = match scheme {
        // Without a path there is no code, whatever the host.
        Some(scheme) => behind_host(&text[scheme + 3..]).unwrap_or_default(),
        None => match behind_host(text) {
            Some(path) if is_url && text[..text.len() - path.len()].contains(&b'.') => path,
            _ => text,
        },
    };
    path.strip_prefix(b"/").unwrap_or(path)
}

/// The path behind a host.
fn behind_host(text: &[u8]) -> Option<&[u8]> {
    let slash = text.iter().position(|&it| it == b'/')?;
    Some(&text[slash..])
}

/// A shortened text.
fn shown(text: &[u8]) -> String {
    String::from_utf8_lossy(text).chars().take(64).collect()
}

/// Reads a JSON list of texts, or of objects with names, as some APIs have tags.
fn json_list(list: &str) -> Result<Value, &'static str> {
    let mut values: Vec<Value> = serde_json::from_str(list).map_err(|_error| "a list of texts")?;
    for value in &mut values {
        if let Some(name) = value.get_mut("name") {
            *value = name.take();
        }
    }
    Ok(Value::Array(values))
}

fn text(cells: &Cells, column: Column) -> Result<Option<&str>, Refusal> {
    let text = cells.get(column).map(std::str::from_utf8);
    text.transpose().map_err(|_error| {
        let problem = format!("{} cannot be decoded; set --encoding", column.name());
        Refusal::new("texts that cannot be decoded", problem)
    })
}

fn time(cells: &Cells, column: Column) -> Result<Option<Timestamp>, Refusal> {
    let Some(text) = text(cells, column)? else {
        return Ok(None);
    };
    match moment::parse(text) {
        // No link is from before 1970.
        Some(Moment::At(moment)) if moment.as_millisecond() >= 0 => Ok(Some(moment)),
        Some(Moment::None) => Ok(None),
        Some(Moment::At(_)) | None => Err(Refusal::value(format!(
            "{} is not a time since 1970 like 2030-12-31T23:59:59Z",
            column.name()
        ))),
    }
}

fn number(cells: &Cells, column: Column, most: u64) -> Result<Option<u64>, Refusal> {
    let Some(text) = text(cells, column)? else {
        return Ok(None);
    };
    match text.parse() {
        Ok(number) if (1..=most).contains(&number) => Ok(Some(number)),
        _ => {
            let problem = format!("{} is not a number within bounds", column.name());
            Err(Refusal::value(problem))
        }
    }
}

/// The reason that a row is not a link, in words for the operator. No message shows a target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The heading under which refusals of this kind are counted.
    pub kind: &'static str,
    /// The fault.
    pub problem: String,
    /// A remedy other than another file.
    pub hint: Option<&'static str>,
}

impl Refusal {
    fn new(kind: &'static str, problem: impl Into<String>) -> Self {
        Self {
            kind,
            problem: problem.into(),
            hint: None,
        }
    }

    /// The refusal of data that can't be read as a row.
    pub fn unreadable(problem: impl Into<String>) -> Self {
        Self::new("unreadable rows", problem)
    }

    /// The refusal of a row that is too long, and spans so many lines.
    pub fn too_long(lines: u64) -> Self {
        Self::unreadable(format!("has more than {MAX_ROW} bytes{}", spanning(lines)))
    }

    fn absent(column: Column) -> Self {
        let problem = format!("has no {}", column.name());
        Self::new("rows without a code or target", problem)
    }

    fn forbidden(column: Column) -> Self {
        let name = column.name();
        let problem = match column {
            _ if column.is_password() => format!("{name} is set: a link here would be public"),
            _ if column.is_permission() => {
                format!("{name} is false: the other service does not redirect this link")
            }
            _ => format!("{name} is set: the other service does not redirect this link"),
        };
        Self {
            hint: Some("--map banned=, for example, ignores a column and imports live links"),
            ..Self::new(
                "links that are disabled, deleted or have a password",
                problem,
            )
        }
    }

    fn several_segments(path: &[u8]) -> Self {
        let path = shown(path);
        Self {
            hint: Some("--prefix removes leading segments"),
            ..Self::new(
                "short URLs with several path segments",
                format!("the path {path:?} has several segments; a code is one"),
            )
        }
    }

    fn wrong_check(code: &Code) -> Self {
        let length = code.as_bytes().len();
        let problem = format!(
            "the code has the length of issued codes ({length}) but not their check character, so \
             that nginx would answer 404 without looking for it"
        );
        Self {
            hint: Some(
                "have codes of another length issued (codes.body_length of the sidecar and \
                 shortlink_check of nginx), or codes without a check character (check \"none\" in \
                 both), and import the file again",
            ),
            ..Self::new(
                "codes of an issued length without its check character",
                problem,
            )
        }
    }

    fn of_campaign(problem: impl Into<String>) -> Self {
        Self::new("links of campaigns that there are not", problem)
    }

    /// The refusal of a time, a number or another value without a text of its own.
    fn value(problem: impl Into<String>) -> Self {
        Self::new("times and numbers that are none", problem)
    }

    fn setting(column: Column, problem: impl Display) -> Self {
        let problem = format!("{} {problem}", column.name());
        match column.shape() {
            Shape::Text | Shape::List => Self::new("texts that links may not have", problem),
            _ => Self::value(problem),
        }
    }
}

/// A remark about a row that spans several lines.
pub fn spanning(lines: u64) -> String {
    if lines > 1 {
        format!(", and spans {lines} lines: is a quotation mark not closed?")
    } else {
        String::new()
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU64;

    use shortlink_core::link::Second;

    use super::*;

    fn checks() -> Checks {
        Checks {
            rules: CodeRules {
                check: vocabulary::Check::Luhn,
                ..CodeRules::default()
            },
            reserved: ReservedWords::new(["admin".to_owned()]),
            policy: TargetPolicy::default(),
            own: OwnHosts::default(),
            redirect_status: RedirectStatus::Found,
            created_by: "import".to_owned(),
            now: "2026-01-01T00:00:00Z".parse().expect("a moment"),
            campaigns: [(CampaignId::FIRST, 2)].into(),
            prefix: String::new(),
            tag_delimiter: '|',
        }
    }

    fn setting(name: &str) -> Column {
        Column::setting(name).expect("a setting")
    }

    fn link(cells: &[(Column, &[u8])]) -> Result<Link, Refusal> {
        let mut row = Cells::default();
        row.set(Column::CODE, b"old");
        row.set(Column::URL, b"https://example.com/");
        for (column, text) in cells {
            row.set(*column, text);
        }
        checks().link(&row)
    }

    #[test]
    fn a_row_makes_a_link() {
        let made = link(&[]).expect("a link");
        assert_eq!(made.code.as_str(), "old");
        assert_eq!((made.revision, made.created_at), (1, checks().now));
        let full = link(&[
            (Column::CREATED, b"2019-05-01 08:00:00"),
            (setting("validUntil"), b"1600000000"),
            (setting("redirectStatus"), b"301"),
            (Column::REVOKED, b"2020-01-01"),
            (Column::REVISION, b"7"),
            (Column::UPDATED, b"2020-01-01"),
            (setting("validSince"), b"2019-06-01"),
            (setting("forwardQuery"), b"true"),
            (setting("maxVisits"), b"9"),
            (Column::PAUSED, b"2019-07-01"),
            (setting("externalId"), b"order 7"),
            (setting("note"), b"two\nlines"),
            (setting("domain"), b"S.example.com"),
            (setting("tags"), b"b | a|a"),
            (Column::STRATEGY, b"custom"),
        ]);
        let full = full.expect("a link");
        let moment = |text: &str| -> Timestamp { text.parse().expect("a moment") };
        assert_eq!(full.created_at, moment("2019-05-01T08:00:00Z"));
        assert_eq!(full.valid_until, Second::at(moment("2020-09-13T12:26:40Z")));
        assert_eq!(full.revoked_at, Some(moment("2020-01-01T00:00:00Z")));
        assert_eq!(full.updated_at, moment("2020-01-01T00:00:00Z"));
        assert_eq!(full.redirect_status, RedirectStatus::MovedPermanently);
        assert_eq!(full.revision, 7);
        assert_eq!(full.valid_since, Second::at(moment("2019-06-01T00:00:00Z")));
        assert_eq!(full.paused_at, Some(moment("2019-07-01T00:00:00Z")));
        assert!(full.forward_query);
        assert_eq!(full.max_visits, NonZeroU64::new(9));
        assert_eq!(full.external_id.as_deref(), Some("order 7"));
        assert_eq!(full.domain.as_deref(), Some("s.example.com"));
        assert_eq!(full.note.as_deref(), Some("two\nlines"));
        assert_eq!(full.strategy, Some(CodeOrigin::Custom));
        assert_eq!(full.tags, ["a", "b"]);
        let tagged = link(&[(setting("tags"), b"[\"a|b\"]")]).expect("a link");
        assert_eq!(tagged.tags, ["a|b"]);
        let of_campaign = link(&[
            (Column::URL, b""),
            (Column::CAMPAIGN, b"1"),
            (Column::PARAMETERS, b"Wien&b%20c"),
        ]);
        assert_eq!(
            of_campaign.expect("a link").destination,
            Destination::Campaign {
                id: CampaignId::FIRST,
                values: ParameterValues::from_stored("Wien&b%20c".to_owned()),
            }
        );
        let plan = "R25:d=i https://e.example/app";
        let planned = link(&[(Column::PLAN, plan.as_bytes())]).expect("a link");
        assert_eq!(
            planned.plan.map(|it| it.text().to_owned()).as_deref(),
            Some(plan)
        );
        for faulty in [
            "R25:d=x https://e.example/app",
            "R25:d=i https://e.example/app,",
            "R25:d=i https://localhost/app",
            "Z1:a",
            "E5:bad  ",
            "k3:a&b",
            "k0:",
        ] {
            assert!(
                link(&[(Column::PLAN, faulty.as_bytes())]).is_err(),
                "{faulty}"
            );
        }
        let clicked = link(&[(Column::PLAN, b"k2:sl")]).expect("a link");
        assert_eq!(
            clicked.plan.as_ref().and_then(|it| it.click_id()),
            Some("sl")
        );
        // Those of other services may be anything.
        for domain in ["https://s.example.com", "s.example.com:8080", " "] {
            let other = link(&[(setting("domain"), domain.as_bytes())]).expect("a link");
            assert_eq!(other.domain, None, "{domain}");
        }
        let revoked = link(&[(Column::REVOKED, b"2020-01-01")]).expect("a link");
        assert_eq!(revoked.revision, 2);
    }

    #[test]
    fn the_path_of_a_short_url_is_its_code() {
        let path = |column, text: &str, prefix: &str| {
            let mut row = Cells::default();
            row.set(column, text.as_bytes());
            let checks = Checks {
                prefix: prefix.to_owned(),
                ..checks()
            };
            let path = checks.path(&row).map(<[u8]>::to_vec);
            path.map(|path| String::from_utf8(path).expect("text"))
        };
        let (code, url) = (Column::CODE, Column::SHORT_URL);
        for (column, text, prefix, expected) in [
            (code, "abc", "", "abc"),
            (code, "abc", "s", "abc"),
            (code, "/abc", "", "abc"),
            (code, "https://sho.rt/abc", "", "abc"),
            (url, "https://sho.rt/abc/", "", "abc"),
            (url, "https://sho.rt/abc?utm=a/b#c", "", "abc"),
            (url, "sho.rt/abc", "", "abc"),
            (url, "sho.rt:8080/abc", "", "abc"),
            (url, "https://localhost:8080/abc", "", "abc"),
            (url, "https://short", "", ""),
            (url, "https://short/", "", ""),
            (url, "https://", "", ""),
            // No guess which segments are the code.
            (code, "sho.rt/abc", "", "sho.rt/abc"),
            (code, "a/abc", "", "a/abc"),
            (code, "abc?d", "", "abc?d"),
            (url, "https://sho.rt/a/abc/", "", "a/abc"),
            (url, "https://sho.rt//abc", "", "/abc"),
            (url, "a/abc", "", "a/abc"),
            // The prefix.
            (code, "a/abc", "a", "abc"),
            (url, "https://sho.rt/a/abc/", "a", "abc"),
            (url, "sho.rt/a/b/abc", "a/b", "abc"),
            (url, "https://sho.rt/a/b/abc", "a", "b/abc"),
            (url, "https://sho.rt/ab/abc", "a", "ab/abc"),
            (url, "https://sho.rt/a", "a", "a"),
            (url, "https://sho.rt/a/", "a", ""),
        ] {
            assert_eq!(
                path(column, text, prefix).as_deref(),
                Some(expected),
                "{text}, {prefix}"
            );
        }
        assert_eq!(path(code, "", ""), None);
        let refusal = link(&[(code, b"a/abc")]).expect_err("several segments");
        assert!(refusal.problem.contains("\"a/abc\""), "{}", refusal.problem);
    }

    #[test]
    fn a_link_that_was_not_public_is_refused() {
        let named = |name: &str| {
            let found = Column::forbidding().find(|column| column.name() == name);
            found.expect(name)
        };
        for (name, text, is_allowed) in [
            ("banned", "false", true),
            ("banned", "f", true),
            ("banned", "0", true),
            ("banned", "", true),
            ("banned", "NULL", true),
            ("banned", "t", false),
            ("banned", "maybe", false),
            ("bannedAt", "2024-01-01", false),
            ("disabled", "1", false),
            ("disabledAt", "0000-00-00 00:00:00", true),
            ("deleted", "yes", false),
            ("deletedAt", "2024-01-01T00:00:00Z", false),
            ("active", "True", true),
            ("active", "", true),
            ("active", "0", false),
            ("enabled", "FALSE", false),
            ("password", "", true),
            ("password", "false", true),
            ("password", "NULL", true),
            ("password", "0", false),
            ("password", "no", false),
            ("hasPassword", "true", false),
            ("password", "$2a$12$hash", false),
        ] {
            let made = link(&[(named(name), text.as_bytes())]);
            assert_eq!(made.is_ok(), is_allowed, "{name} {text}");
            if let Err(refusal) = made {
                assert!(refusal.problem.starts_with(name), "{}", refusal.problem);
                assert!(!refusal.problem.contains("hash"), "{}", refusal.problem);
            }
        }
    }

    #[test]
    fn tags_are_read_as_the_file_has_them() {
        let tags = |delimiter, text: &str| {
            let mut row = Cells::default();
            row.set(setting("tags"), text.as_bytes());
            let checks = Checks {
                tag_delimiter: delimiter,
                ..checks()
            };
            checks.settings(&row).map(|it| it.tags.unwrap_or_default())
        };
        for (delimiter, text, expected) in [
            ('|', "b|a, c", &["a, c", "b"][..]),
            (',', "b, a|c,,", &["a|c", "b"]),
            (',', "[\"a,b\"]", &["a,b"]),
            ('|', "[{\"id\":1,\"name\":\"a\"},\"b\"]", &["a", "b"]),
        ] {
            assert_eq!(tags(delimiter, text).expect(text), expected);
        }
        assert!(tags('|', "[{\"id\":1}]").is_err());
    }

    #[test]
    fn a_row_that_would_not_be_resolved_is_refused() {
        for (column, text, kind) in [
            (Column::CODE, &b""[..], "rows without a code or target"),
            (Column::CODE, b"https://short/", "texts that can't be codes"),
            (Column::CODE, b"a b", "texts that can't be codes"),
            (Column::CODE, b"a\0b", "texts that can't be codes"),
            (Column::CODE, b"\xff\xfe", "texts that can't be codes"),
            (Column::CODE, &[b'A'; 65], "texts that can't be codes"),
            (Column::CODE, b"Admin", "reserved words"),
            (
                Column::CODE,
                b"abcdefgh",
                "codes of an issued length without its check character",
            ),
            (Column::URL, b"", "rows without a code or target"),
            (Column::URL, b"NULL", "rows without a code or target"),
            (
                Column::URL,
                b"https://example.com/\xff",
                "texts that cannot be decoded",
            ),
            (
                Column::URL,
                b"https://example.com/\0",
                "targets that links may not have",
            ),
            (
                Column::URL,
                b"javascript:alert(1)",
                "targets that links may not have",
            ),
            (
                Column::URL,
                b"https://10.0.0.1/",
                "targets that links may not have",
            ),
            (
                Column::CREATED,
                b"yesterday",
                "times and numbers that are none",
            ),
            (
                Column::CREATED,
                b"1969-01-01",
                "times and numbers that are none",
            ),
            (
                setting("validUntil"),
                b"1970-01-01",
                "times and numbers that are none",
            ),
            (
                setting("redirectStatus"),
                b"200",
                "times and numbers that are none",
            ),
            (
                Column::CAMPAIGN,
                b"2",
                "links of campaigns that there are not",
            ),
            // It has two parameters.
            (
                Column::CAMPAIGN,
                b"1",
                "links of campaigns that there are not",
            ),
            (
                setting("forwardQuery"),
                b"maybe",
                "times and numbers that are none",
            ),
            (
                setting("maxVisits"),
                b"0",
                "times and numbers that are none",
            ),
            (
                setting("externalId"),
                b"a\tb",
                "texts that links may not have",
            ),
            (setting("tags"), b"[1]", "texts that links may not have"),
            (Column::REVISION, b"0", "times and numbers that are none"),
            (
                Column::REVISION,
                b"9007199254740992",
                "times and numbers that are none",
            ),
        ] {
            let refusal = link(&[(column, text)]).expect_err("no link");
            assert_eq!(refusal.kind, kind, "{}", refusal.problem);
        }
        // Nine characters are no issued length.
        assert!(link(&[(Column::CODE, b"abcdefghi")]).is_ok());
    }
}
