//! Each Redis by its name: `shortlink_redis <name>` defines it, `shortlink <name>` uses it.

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use crate::directives::words::{Set, shown};
use crate::nginx::conf::Conf;
use crate::settings::redis::RedisNumber;
use crate::settings::zones::{CounterZone, MissLimiting, MissZone};
use crate::settings::{Settings, SpoolConf};
use crate::worker::spool::has_files;

/// The most characters of a name.
const LONGEST_NAME: usize = 32;

/// The Redis that `shortlink` names, which may be defined later.
pub(crate) fn use_named(conf: &mut Conf) -> Result<RedisNumber, String> {
    let (number, _) = read(conf)?;
    let (file, line) = conf.place();
    let main = conf.main_mut::<Settings>();
    if let Some(redis) = main.and_then(|main| main.redis_mut(number)) {
        redis.used_in.get_or_insert(format!("{file}:{line}"));
    }
    Ok(number)
}

/// The place of the Redis that a directive names, and the name.
pub(crate) fn read(conf: &mut Conf) -> Result<(RedisNumber, String), String> {
    let name = read_name(conf)?;
    let main = conf.main_mut::<Settings>();
    let number = main.map(|main| main.redis_number(&name));
    Ok((number.unwrap_or_default(), name))
}

/// Returns whether a text can be a name.
fn is_name(text: &[u8]) -> bool {
    let is_part = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
    (1..=LONGEST_NAME).contains(&text.len()) && text.iter().all(is_part)
}

/// Reads the name after a directive, if there is one. It becomes part of the names of files, memory and metrics.
fn read_name(conf: &Conf) -> Result<String, String> {
    let words = conf.words();
    let name = words.get(1).copied().unwrap_or_default();
    if words.len() > 1 && !is_name(name) {
        return Err(format!(
            "the name \"{}\" does not consist of 1 to {LONGEST_NAME} letters, digits, \"_\" and \"-\"",
            shown(name)
        ));
    }
    Ok(shown(name))
}

/// A directive with the name of a Redis, as the configuration has it.
pub(crate) fn words(directive: &str, name: &str) -> String {
    match name {
        "" => directive.to_owned(),
        _ => format!("{directive} {name}"),
    }
}

/// Checks that each Redis that locations use is defined, and that its servers have addresses, or will have.
pub(crate) fn check(conf: &Conf) -> Set {
    let main = conf.main::<Settings>().ok_or("there is no http block")?;
    let defined = main.redis.iter().filter(|redis| redis.conf.is_some());
    let defined: Vec<String> = defined
        .map(|redis| format!("\"{}\"", words("shortlink_redis", &redis.name)))
        .collect();
    if let Some(redis) = main.used().find(|redis| redis.conf.is_none()) {
        let others = match &defined[..] {
            [] => String::new(),
            _ => format!(", only {}", defined.join(", ")),
        };
        return Err(format!(
            "\"{}\" in {} has no \"{}\" in the http block{others}",
            words("shortlink", &redis.name),
            redis.used_in.as_deref().unwrap_or_default(),
            words("shortlink_redis", &redis.name),
        ));
    }
    if main.has_status && defined.is_empty() {
        return Err(
            "a location has \"shortlink_status\" but there is no \"shortlink_redis\" in the http \
             block"
                .to_owned(),
        );
    }
    let mut unresolved = main
        .used()
        .filter_map(|redis| redis.conf.as_ref()?.unresolved.as_ref());
    if let Some((address, place)) = unresolved.next()
        && !conf.has_resolver()
    {
        return Err(format!(
            "no address is known of {address} in {place}, and the http block has no \"resolver\" \
             that could find one later"
        ));
    }
    Ok(())
}

/// Asks nginx for the memory and the directories of each Redis that locations use.
pub(crate) fn prepare(conf: &mut Conf) -> Set {
    let main = conf.main::<Settings>().ok_or("there is no http block")?;
    let spool = main.visits.as_ref().and_then(|visits| visits.spool.clone());
    for index in 0..main.redis.len() {
        prepare_one(conf, RedisNumber::new(index), spool.as_ref())?;
    }
    if let Some(spool) = &spool {
        warn_of_left_files(conf, &spool.directory);
    }
    Ok(())
}

/// Warns of files with visits for a Redis that no location uses: no worker sends them.
fn warn_of_left_files(conf: &Conf, spool: &Path) {
    let Some(main) = conf.main::<Settings>() else {
        return;
    };
    let entries = fs::read_dir(spool).into_iter().flatten().flatten();
    let folders = entries.filter_map(|entry| entry.file_name().into_string().ok());
    for name in folders
        .filter(|name| is_name(name.as_bytes()))
        .chain([String::new()])
    {
        let is_used = main.used().any(|redis| redis.name == name);
        let directory = spool.join(&name);
        if !is_used && has_files(&directory) {
            conf.warn(&format!(
                "{} has visits that are not sent, because no location has \"{};\"",
                directory.display(),
                words("shortlink", &name)
            ));
        }
    }
}

/// Asks nginx for the memory of the misses of a Redis: one for the limits that share it.
fn add_misses(
    conf: &mut Conf,
    number: RedisNumber,
    name: &str,
) -> Result<Vec<(usize, Option<MissZone>)>, String> {
    let main = conf.main::<Settings>().ok_or("there is no http block")?;
    let limits = main.miss_limits.clone();
    let redis = main.redis.get(number.index());
    let used: Vec<usize> = redis
        .into_iter()
        .flat_map(|redis| redis.misses.iter().map(|(limit, _)| *limit))
        .collect();
    let of_http = match main.miss_limit {
        MissLimiting::By(limit) => limits.get(limit).cloned(),
        MissLimiting::Off => None,
    };
    let mut found: Vec<(usize, Option<MissZone>)> = Vec::new();
    for index in used {
        let Some(limit) = limits.get(index) else {
            continue;
        };
        let shared = found.iter().find(|(other, _)| {
            let other = limits.get(*other);
            other.is_some_and(|other| other.shares_with(limit))
        });
        let zone = match shared {
            Some((_, zone)) => *zone,
            None => {
                let is_of_http = of_http.as_ref().is_some_and(|it| it.shares_with(limit));
                let name_of_limit = (!is_of_http).then_some(&*limit.name);
                Some(MissZone::add(conf, name, name_of_limit, limit.bytes)?)
            }
        };
        found.push((index, zone));
    }
    Ok(found)
}

fn prepare_one(conf: &mut Conf, number: RedisNumber, spool: Option<&SpoolConf>) -> Set {
    let main = conf
        .main_mut::<Settings>()
        .ok_or("there is no http block")?;
    let redis = main.redis_mut(number).ok_or("there is no such Redis")?;
    let (name, is_used) = (redis.name.clone(), redis.used_in.is_some());
    if !is_used {
        return Ok(());
    }
    let counters = CounterZone::add(conf, &name)?;
    let misses = add_misses(conf, number, &name)?;
    let directory = spool
        .map(|spool| match &*name {
            "" => Ok(spool.directory.clone()),
            _ => conf.add_directory(spool.directory.join(&name).as_os_str().as_bytes()),
        })
        .transpose()?;
    let main = conf.main_mut::<Settings>();
    if let Some(redis) = main.and_then(|main| main.redis_mut(number)) {
        (redis.counters, redis.misses, redis.spool) = (Some(counters), misses, directory);
    }
    Ok(())
}
