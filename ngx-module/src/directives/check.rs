//! `shortlink_check`: the format of issued codes.

use std::fs;

use resolver::vocabulary::{Alphabet, BodyLengths, Check, CheckKeys, CodeRules};

use crate::directives::words::{Set, refuse_twice, shown};
use crate::nginx::conf::Conf;
use crate::settings::Settings;

/// `shortlink_check`
pub(crate) fn set(conf: &mut Conf) -> Set {
    let level = conf.location::<Settings>();
    if level.is_some_and(|level| level.rules != 0) {
        return Err("\"shortlink_check\" is given twice here".to_owned());
    }
    let rules = read(conf)?;
    let main = conf
        .main_mut::<Settings>()
        .ok_or("there is no http block")?;
    let place = main.rules.len();
    main.rules.push(rules);
    if let Some(level) = conf.location_mut::<Settings>() {
        level.rules = place;
    }
    Ok(())
}

fn read(conf: &Conf) -> Result<CodeRules, String> {
    let words = conf.words();
    let (method, parameters) = words[1..].split_first().ok_or("a method is missing")?;
    let mut rules = CodeRules::default();
    let mut keys = None;
    refuse_twice("shortlink_check", parameters)?;
    for parameter in parameters {
        if let Some(value) = parameter.strip_prefix(b"body=") {
            rules.bodies = BodyLengths::parse(value).ok_or_else(|| {
                format!(
                    "\"{}\" is not a length such as body=7 or a range such as body=7-9, within 1 \
                     to {}",
                    shown(parameter),
                    BodyLengths::LONGEST
                )
            })?;
        } else if let Some(value) = parameter.strip_prefix(b"alphabet=") {
            rules.alphabet = Alphabet::by_name(value).ok_or_else(|| {
                format!(
                    "unknown alphabet \"{}\": it is one of {}",
                    shown(value),
                    Alphabet::NAMES
                )
            })?;
        } else if let Some(value) = parameter.strip_prefix(b"keys=") {
            keys = Some(read_keys(conf, value)?);
        } else if *parameter == b"ignore_case" {
            rules.ignores_case = true;
        } else {
            return Err(format!(
                "unknown parameter \"{}\" of \"shortlink_check\": allowed are body=, alphabet=, \
                 keys= and ignore_case",
                shown(parameter)
            ));
        }
    }
    rules.check = match (*method, keys) {
        (b"none", None) => Check::None,
        (b"luhn", None) => Check::Luhn,
        (b"keyed", Some(keys)) => Check::Keyed(keys),
        (b"keyed", None) => {
            return Err("\"shortlink_check keyed\" needs keys=<file>".to_owned());
        }
        (b"none" | b"luhn", Some(_)) => {
            return Err("keys= is for \"shortlink_check keyed\" only".to_owned());
        }
        _ => {
            return Err(format!(
                "unknown check \"{}\": it is one of {}",
                shown(method),
                Check::NAMES
            ));
        }
    };
    Ok(rules)
}

/// Reads a key file; a relative name stands beside the configuration.
fn read_keys(conf: &Conf, name: &[u8]) -> Result<CheckKeys, String> {
    let path = conf.config_path(name)?;
    let text = fs::read(&path).map_err(|error| format!("check keys \"{path}\": {error}"))?;
    CheckKeys::parse(&text).map_err(|error| format!("check keys \"{path}\": {error}"))
}
