//! Options for the members of links and campaigns, generated from their declarations.

use std::marker::PhantomData;

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser, ValueParser};
use clap::{Arg, ArgAction, ArgGroup, ArgMatches, Args, Command, FromArgMatches, value_parser};
use serde_json::{Map, Value, json};
use shortlink_api::campaign::{CampaignSettings, DefaultMembers};
use shortlink_api::kinds::Shape;
use shortlink_api::link::{LinkSettings, LinkTarget};
use shortlink_api::members::{Member, Members};
use shortlink_api::rules::PlanMembers;
use shortlink_api::webhook::WebhookSettings;

use super::values::{Pair, code_length, dedupe, json_or_file, moment, object};

/// The resource that options describe.
pub(super) trait Subject: 'static {
    /// The members that a change can have.
    const SETTINGS: &'static [&'static [Member]];
    /// The members that have an option besides.
    const OTHERS: &'static [Member] = &[];
    /// Members that commands have as arguments of their own.
    const ARGUMENTS: &'static [&'static str];
    /// The member that is an object of the options of these members.
    const INNER: (&'static str, &'static [Member]) = ("", &[]);
}

/// A link.
#[derive(Debug)]
pub(super) struct Link;

impl Subject for Link {
    const SETTINGS: &'static [&'static [Member]] = &[LinkSettings::MEMBERS, PlanMembers::MEMBERS];
    const OTHERS: &'static [Member] = LinkTarget::MEMBERS;
    const ARGUMENTS: &'static [&'static str] = &["longUrl"];
}

/// A campaign.
#[derive(Debug)]
pub(super) struct Campaign;

impl Subject for Campaign {
    const SETTINGS: &'static [&'static [Member]] =
        &[CampaignSettings::MEMBERS, PlanMembers::MEMBERS];
    const ARGUMENTS: &'static [&'static str] = &["name", "longUrl", "defaults"];
    const INNER: (&'static str, &'static [Member]) = ("defaults", DefaultMembers::MEMBERS);
}

/// A webhook.
#[derive(Debug)]
pub(super) struct Webhook;

impl Subject for Webhook {
    const SETTINGS: &'static [&'static [Member]] = &[WebhookSettings::MEMBERS];
    const ARGUMENTS: &'static [&'static str] = &["name", "url"];
}

/// The options of a change: the new members, and those to remove.
#[derive(Debug, Args)]
#[group(skip)]
pub(super) struct Changes<S: Subject> {
    /// Member to remove. Can be repeated; commas separate several values.
    #[arg(
        long = "clear",
        id = "cleared",
        value_name = "MEMBER",
        value_delimiter = ',',
        value_parser = Options::<S>::removable_names()
    )]
    cleared: Vec<String>,
    #[command(flatten)]
    options: Options<S>,
}

impl<S: Subject> Changes<S> {
    /// Adds them to a request.
    pub(super) fn add_to(&self, members: &mut Map<String, Value>) {
        self.options.add_to(members);
        for member in Options::<S>::removable() {
            if self.cleared.contains(&member.kebab()) {
                members.insert(member.name.to_owned(), Value::Null);
            }
        }
    }
}

/// The options of a subject, as the members of a request.
#[derive(Debug)]
pub(super) struct Options<S>(Map<String, Value>, PhantomData<S>);

impl<S: Subject> Options<S> {
    fn members() -> impl Iterator<Item = &'static Member> {
        let members = S::SETTINGS.iter().copied().flatten().chain(S::OTHERS);
        members.filter(|member| !S::ARGUMENTS.contains(&member.name))
    }

    fn all() -> impl Iterator<Item = &'static Member> {
        Self::members().chain(S::INNER.1)
    }

    fn removable() -> impl Iterator<Item = &'static Member> {
        // UTM parameters go with their target.
        let others = S::OTHERS.iter().filter(|member| member.name == "clickId");
        let members = S::SETTINGS.iter().copied().flatten().chain(others);
        members.filter(|member| member.is_removable())
    }

    /// Adds the specified members to a request.
    pub(super) fn add_to(&self, members: &mut Map<String, Value>) {
        members.extend(self.0.clone());
    }

    /// Requires one of the options, or of `others`, of a command that changes something.
    pub(super) fn one_of(others: impl IntoIterator<Item = &'static str>) -> ArgGroup {
        let group = ArgGroup::new("change").multiple(true).required(true);
        group.args(others).args(Self::all().map(Member::option))
    }

    /// Reads the names of members that are to be removed.
    fn removable_names() -> ValueParser {
        let values = Self::removable().map(|member| {
            let about = member.about();
            let about = about.split(['.', ',', ';', ':']).next().unwrap_or_default();
            PossibleValue::new(member.kebab()).help(format!("{about}."))
        });
        PossibleValuesParser::new(values).into()
    }
}

impl<S: Subject> Args for Options<S> {
    fn augment_args(command: Command) -> Command {
        command.args(Self::all().map(option))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl<S: Subject> FromArgMatches for Options<S> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let given = |member: &Member| Some((member.name.to_owned(), value(member, matches)?));
        let mut all: Map<String, Value> = Self::members().filter_map(given).collect();
        let (name, members) = S::INNER;
        let inner: Map<String, Value> = members.iter().filter_map(given).collect();
        if !inner.is_empty() {
            all.insert(name.to_owned(), Value::Object(inner));
        }
        Ok(Self(all, PhantomData))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

/// The option of a member.
fn option(member: &Member) -> Arg {
    let name = member.option();
    let last = name.rsplit('-').next().unwrap_or_default().to_uppercase();
    let option = Arg::new(name.clone()).long(name);
    let (option, placeholder, note) = match member.shape {
        Shape::Text => (option, &*last, ""),
        Shape::Number => (option.value_parser(number(member)), &*last, ""),
        Shape::Truth => {
            let option = option.value_parser(value_parser!(bool)).num_args(0..=1);
            let option = option.require_equals(true).default_missing_value("true");
            (option, "BOOL", " True or false; true without a value.")
        }
        Shape::Moment => {
            let note = " A time such as 2030-12-31T23:59:59Z, or a day (UTC).";
            (option.value_parser(moment), "TIME", note)
        }
        Shape::Length => {
            let note = " A number such as 7, or a range such as 7-9.";
            (option.value_parser(code_length), "LENGTH", note)
        }
        Shape::Window => {
            let option = option.value_parser(dedupe).num_args(0..=1);
            let option = option.require_equals(true).default_missing_value("true");
            (option, "TIME", " True without a value.")
        }
        Shape::Json => {
            let note = " JSON, or the name of a file with JSON.";
            (option.value_parser(json_or_file), "JSON", note)
        }
        Shape::List => (
            option.action(ArgAction::Append),
            &*last,
            " Can be repeated.",
        ),
        Shape::Object => {
            let option = option.value_parser(value_parser!(Pair));
            (
                option.action(ArgAction::Append),
                "NAME=VALUE",
                " Can be repeated.",
            )
        }
    };
    let help = format!("{}{note}", member.about());
    let help = help.trim_end_matches('.').to_owned();
    option.value_name(placeholder.to_owned()).help(help)
}

/// Reads a number: one of the allowed ones where the declaration has them.
fn number(member: &Member) -> ValueParser {
    let choices: Vec<&str> = member.choices().collect();
    if choices.is_empty() {
        return value_parser!(u64).into();
    }
    PossibleValuesParser::new(choices)
        .try_map(|choice| choice.parse::<u64>())
        .into()
}

/// The value that was specified for a member.
fn value(member: &Member, matches: &ArgMatches) -> Option<Value> {
    let name = &*member.option();
    match member.shape {
        Shape::Text | Shape::Moment => matches.get_one::<String>(name).map(|it| json!(it)),
        Shape::Number => matches.get_one::<u64>(name).map(|it| json!(it)),
        Shape::Truth => matches.get_one::<bool>(name).map(|it| json!(it)),
        Shape::Length | Shape::Window | Shape::Json => matches.get_one::<Value>(name).cloned(),
        Shape::List => {
            let values = matches.get_many::<String>(name)?;
            Some(values.map(|it| json!(it)).collect())
        }
        Shape::Object => {
            let pairs: Vec<Pair> = matches.get_many::<Pair>(name)?.cloned().collect();
            Some(object(&pairs))
        }
    }
}

/// Adds a member, if it has a value.
pub(super) fn put<T: serde::Serialize>(
    members: &mut Map<String, Value>,
    name: &str,
    value: Option<&T>,
) {
    if let Some(value) = value {
        members.insert(name.to_owned(), json!(value));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_one_of_those_that_its_declaration_allows() {
        let read = |option: &str, number: &str| {
            let command = Options::<Link>::augment_args(Command::new("change"));
            let matches = command.try_get_matches_from(["change", option, number])?;
            Options::<Link>::from_arg_matches(&matches).map(|options| options.0)
        };
        let status = read("--status", "308").expect("an allowed status");
        assert_eq!(Value::Object(status), json!({"redirectStatus": 308}));
        for refused in ["0", "200", "303", "65838", "x"] {
            let error = read("--status", refused).expect_err(refused).to_string();
            assert!(error.contains("301, 302, 307, 308"), "{error}");
        }
        let visits = read("--max-visits", "200").expect("any number");
        assert_eq!(Value::Object(visits), json!({"maxVisits": 200}));
    }

    #[test]
    fn rules_are_given_as_json_or_in_a_file() {
        let read = |rules: &str| {
            let command = Options::<Campaign>::augment_args(Command::new("change"));
            let matches = command.try_get_matches_from(["change", "--rules", rules])?;
            Options::<Campaign>::from_arg_matches(&matches)
                .map(|options| options.0["rules"].clone())
        };
        let rules = json!([{"device": ["ios"], "longUrl": "https://e.example/app"}]);
        assert_eq!(read(&rules.to_string()).expect("JSON"), rules);
        let directory = tempfile::tempdir().expect("a directory");
        let file = directory.path().join("rules.json");
        let name = file.to_str().expect("a name");
        assert!(read(name).is_err());
        std::fs::write(&file, rules.to_string()).expect("a file");
        assert_eq!(read(name).expect("a file"), rules);
        std::fs::write(&file, "[{").expect("a file");
        let error = read(name).expect_err("no JSON").to_string();
        assert!(error.contains("not JSON"), "{error}");
        let removed: Vec<String> = Options::<Link>::removable().map(Member::kebab).collect();
        for name in ["rules", "expired-target", "paused-target", "not-yet-target"] {
            assert!(removed.iter().any(|it| it == name), "{name}: {removed:?}");
        }
    }
}
