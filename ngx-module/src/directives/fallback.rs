//! `shortlink_fallback`: the location that answers when neither the cache nor Redis can, and its bounds.

use resolver::fallback::FallbackLimits;
use resolver::vocabulary::number::parse_decimal;

use crate::directives::words::{Set, refuse_twice, shown};
use crate::nginx::conf::Conf;
use crate::settings::{FallbackConf, Settings};

/// `shortlink_fallback`
pub(crate) fn set(conf: &mut Conf) -> Set {
    let location = conf.location::<Settings>().ok_or("there is no location")?;
    if location.fallback.is_some() {
        return Err("\"shortlink_fallback\" is given twice here".to_owned());
    }
    let (name, limits) = read(&conf.words()[1..])?;
    let (file, line) = conf.place();
    let fallback = FallbackConf {
        name,
        limits,
        // Only locations have a Redis.
        index: 0,
        file,
        line,
    };
    if let Some(location) = conf.location_mut::<Settings>() {
        location.fallback = Some(fallback);
    }
    Ok(())
}

fn read(words: &[&[u8]]) -> Result<(Box<[u8]>, FallbackLimits), String> {
    let (&name, parameters) = words.split_first().ok_or("a location is missing")?;
    if name.first() != Some(&b'@') || name.len() < 2 {
        return Err(format!(
            "\"shortlink_fallback\" takes a named location such as @sidecar, not \"{}\"",
            shown(name)
        ));
    }
    Ok((name.into(), read_limits(parameters)?))
}

fn read_limits(words: &[&[u8]]) -> Result<FallbackLimits, String> {
    let mut limits = FallbackLimits::default();
    refuse_twice("shortlink_fallback", words)?;
    for word in words {
        if let Some(value) = word.strip_prefix(b"max_waiting=") {
            let percent = value.strip_suffix(b"%").and_then(parse_decimal);
            limits.waiting_percent = in_range(percent, 1, FallbackLimits::MOST_PERCENT)
                .ok_or_else(|| {
                    format!(
                        "max_waiting \"{}\" is not a share of worker_connections from 1% to {}%",
                        shown(value),
                        FallbackLimits::MOST_PERCENT
                    )
                })?;
        } else if let Some(value) = word.strip_prefix(b"max_fails=") {
            limits.failures = in_range(parse_decimal(value), 0, FallbackLimits::MOST_FAILURES)
                .ok_or_else(|| {
                    format!(
                        "max_fails \"{}\" is not a number from 0 to {}",
                        shown(value),
                        FallbackLimits::MOST_FAILURES
                    )
                })?;
        } else {
            return Err(format!(
                "unknown parameter \"{}\" of \"shortlink_fallback\": allowed are max_waiting= and \
                 max_fails=",
                shown(word)
            ));
        }
    }
    Ok(limits)
}

fn in_range(number: Option<u64>, least: u32, most: u32) -> Option<u32> {
    let number = u32::try_from(number?).ok()?;
    (least..=most).contains(&number).then_some(number)
}
