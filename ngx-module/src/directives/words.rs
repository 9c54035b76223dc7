//! Reads the words that directives consist of.

use resolver::vocabulary::number::parse_decimal;

use crate::nginx::conf::{Conf, parse_size};
use crate::nginx::variable::VariableIndex;

/// The result of a directive's function.
pub(crate) type Set = Result<(), String>;

/// Reads a time such as `50ms`, `10s`, `5m` or `1h`, in milliseconds; without a unit it is in
/// seconds, as everywhere in nginx' configuration.
pub(crate) fn read_time(name: &str, value: &[u8], least: u64, most: u64) -> Result<u64, String> {
    let (digits, unit) = match value {
        [digits @ .., b'm', b's'] => (digits, 1),
        [digits @ .., b's'] => (digits, 1000),
        [digits @ .., b'm'] => (digits, 60_000),
        [digits @ .., b'h'] => (digits, 3_600_000),
        digits => (digits, 1000),
    };
    parse_decimal(digits)
        .and_then(|number| number.checked_mul(unit))
        .filter(|time| (least..=most).contains(time))
        .ok_or_else(|| {
            format!(
                "{name} \"{}\" is not a time from {least}ms to {}s",
                shown(value),
                most / 1000
            )
        })
}

/// Reads a size such as `64k` or `32m`.
pub(crate) fn read_size(
    name: &str,
    value: &[u8],
    least: usize,
    most: usize,
) -> Result<usize, String> {
    parse_size(value)
        .filter(|size| (least..=most).contains(size))
        .ok_or_else(|| {
            format!(
                "{name} \"{}\" is not a size from {}k to {}m",
                shown(value),
                least >> 10,
                most >> 20
            )
        })
}

/// Reads one variable, such as `$trusted`; a message shows it behind `before`.
pub(crate) fn read_variable(
    conf: &Conf,
    before: &str,
    value: &[u8],
) -> Result<VariableIndex, String> {
    let is_part = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
    let is_name = |text: &&[u8]| !text.is_empty() && text.iter().all(is_part);
    match value.strip_prefix(b"$").filter(is_name) {
        Some(variable) => variable_index(conf, variable),
        None => Err(format!(
            "\"{before}{}\" is not one variable, such as {before}$trusted",
            shown(value)
        )),
    }
}

/// The index of a variable; nginx refuses the configuration when there is none of that name.
pub(crate) fn variable_index(conf: &Conf, name: &[u8]) -> Result<VariableIndex, String> {
    let index = conf.variable_index(name);
    index.ok_or_else(|| format!("the variable \"${}\" can't be used", shown(name)))
}

/// Refuses a parameter that stands twice among those of a directive: `name=value`, or a word.
pub(crate) fn refuse_twice(directive: &str, parameters: &[&[u8]]) -> Set {
    let names: Vec<&[u8]> = parameters
        .iter()
        .filter_map(|parameter| parameter.split(|&byte| byte == b'=').next())
        .collect();
    let is_repeated = |(place, name): &(usize, &&[u8])| names[..*place].contains(name);
    match names.iter().enumerate().find(is_repeated) {
        None => Ok(()),
        Some((_, name)) => Err(format!(
            "parameter \"{}\" of \"{directive}\" is given twice",
            shown(name)
        )),
    }
}

/// Shows a word in a message.
pub(crate) fn shown(word: &[u8]) -> String {
    String::from_utf8_lossy(word).into_owned()
}
