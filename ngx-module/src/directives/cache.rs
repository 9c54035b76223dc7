//! `shortlink_cache`: the size of each worker's cache, and the times of its entries.

use resolver::CacheSettings;
use resolver::cache::Cache;

use crate::directives::words::{Set, read_size, read_time, refuse_twice, shown};
use crate::nginx::conf::Conf;
use crate::settings::{DEFAULT_CACHE, Settings};

/// The longest times, in milliseconds: a day.
const LONGEST_TIME: u64 = 86_400_000;

/// `shortlink_cache`: of the `http` block the size, of a server or location whether it is used.
pub(crate) fn set(conf: &mut Conf) -> Set {
    if !conf.is_http_block() {
        return switch(conf);
    }
    let main = conf.main::<Settings>().ok_or("there is no http block")?;
    if main.given.cache {
        return Err("\"shortlink_cache\" is given twice".to_owned());
    }
    let cache = read(&conf.words()[1..])?;
    if let Some(main) = conf.main_mut::<Settings>() {
        main.given.cache = true;
        main.cache = cache;
    }
    Ok(())
}

fn switch(conf: &mut Conf) -> Set {
    let uses_cache = match &conf.words()[1..] {
        [b"on"] => true,
        [b"off"] => false,
        _ => {
            return Err(
                "in a server or location, \"shortlink_cache\" is on or off: the http block has its size"
                    .to_owned(),
            );
        }
    };
    let level = conf.location_mut::<Settings>();
    let level = level.ok_or("there is no location")?;
    if level.uses_cache.replace(uses_cache).is_some() {
        return Err("\"shortlink_cache\" is given twice here".to_owned());
    }
    Ok(())
}

fn read(words: &[&[u8]]) -> Result<Option<CacheSettings>, String> {
    let (&size, parameters) = words.split_first().ok_or("a size is missing")?;
    if size == b"off" {
        if !parameters.is_empty() {
            return Err("\"shortlink_cache off\" takes no parameters".to_owned());
        }
        return Ok(None);
    }
    let mut settings = CacheSettings {
        bytes: read_size(
            "the cache's size, unless it is \"off\",",
            size,
            Cache::LEAST_BYTES,
            Cache::MOST_BYTES,
        )?,
        ..DEFAULT_CACHE
    };
    refuse_twice("shortlink_cache", parameters)?;
    for parameter in parameters {
        if let Some(value) = parameter.strip_prefix(b"stale=") {
            settings.stale_for = read_time("stale", value, 0, LONGEST_TIME)?;
        } else if let Some(value) = parameter.strip_prefix(b"age=") {
            settings.longest_age = read_time("age", value, 1000, LONGEST_TIME)?;
        } else {
            return Err(format!(
                "unknown parameter \"{}\" of \"shortlink_cache\": allowed are stale= and age=",
                shown(parameter)
            ));
        }
    }
    Ok(Some(settings))
}
