//! `shortlink_visits`: whether followed links are recorded, and how.

use std::path::PathBuf;

use resolver::VisitSettings;
use resolver::vocabulary::number::parse_decimal;

use crate::directives::words::{Set, read_size, read_time, refuse_twice, shown};
use crate::nginx::conf::Conf;
use crate::settings::{Settings, SpoolConf, VisitsConf};

/// The most bytes that the files may take unless it is set.
const DEFAULT_SPOOL_SIZE: usize = 1 << 30;

/// The least and most that they may take.
const SPOOL_SIZES: (usize, usize) = (1 << 20, 1 << 40);

/// `shortlink_visits`
pub(crate) fn set(conf: &mut Conf) -> Set {
    let main = conf.main::<Settings>().ok_or("there is no http block")?;
    if main.given.visits {
        return Err("\"shortlink_visits\" is given twice".to_owned());
    }
    let read = read(&conf.words()[1..])?;
    let visits = match read {
        None => None,
        Some((settings, None)) => Some(VisitsConf {
            settings,
            spool: None,
        }),
        Some((settings, Some((directory, size)))) => Some(VisitsConf {
            settings,
            spool: Some(SpoolConf {
                directory: add_directory(conf, &directory)?,
                size,
            }),
        }),
    };
    if let Some(main) = conf.main_mut::<Settings>() {
        main.given.visits = true;
        main.visits = visits;
    }
    Ok(())
}

/// The settings, and the directory of the files with its size; `None` when it is off.
type Read = Option<(VisitSettings, Option<(Vec<u8>, u64)>)>;

fn read(words: &[&[u8]]) -> Result<Read, String> {
    let (&switch, parameters) = words.split_first().ok_or("on or off is missing")?;
    match switch {
        b"on" => {}
        b"off" if parameters.is_empty() => return Ok(None),
        b"off" => return Err("\"shortlink_visits off\" takes no parameters".to_owned()),
        _ => {
            return Err(format!(
                "\"shortlink_visits\" is on or off, not \"{}\"",
                shown(switch)
            ));
        }
    }
    let mut settings = VisitSettings::default();
    let (mut directory, mut spool_size) = (None, None);
    refuse_twice("shortlink_visits", parameters)?;
    for parameter in parameters {
        if let Some(value) = parameter.strip_prefix(b"batch=") {
            settings.batch = read_number("batch", value, u64::from(VisitSettings::MOST_BATCH))?;
        } else if let Some(value) = parameter.strip_prefix(b"bytes=") {
            let (least, most) = VisitSettings::BYTES;
            settings.bytes = read_size("bytes", value, least, most)?;
        } else if let Some(value) = parameter.strip_prefix(b"interval=") {
            let most = VisitSettings::LONGEST_INTERVAL;
            settings.interval = read_time("interval", value, 1, most)?;
        } else if let Some(value) = parameter.strip_prefix(b"buffer=") {
            let (least, most) = VisitSettings::BUFFER;
            settings.buffer = read_size("buffer", value, least, most)?;
        } else if let Some(value) = parameter.strip_prefix(b"streams=") {
            let most = u64::from(VisitSettings::MOST_STREAMS);
            // The number is small enough.
            settings.streams = read_number("streams", value, most)? as u16;
        } else if let Some(value) = parameter.strip_prefix(b"spool_size=") {
            let (least, most) = SPOOL_SIZES;
            spool_size = Some(read_size("spool_size", value, least, most)?);
        } else if let Some(value) = parameter.strip_prefix(b"spool=") {
            directory = Some(value);
        } else {
            return Err(format!(
                "unknown parameter \"{}\" of \"shortlink_visits\": allowed are batch=, bytes=, \
                 interval=, buffer=, spool=, spool_size= and streams=",
                shown(parameter)
            ));
        }
    }
    if settings.bytes * 2 > settings.buffer {
        return Err(format!(
            "buffer= must hold at least two batches, which are {}k each: see bytes=",
            settings.bytes >> 10
        ));
    }
    let spool = match (directory, spool_size) {
        (None, None) => None,
        (None, Some(_)) => return Err("spool_size= needs spool=<directory>".to_owned()),
        (Some(directory), size) => {
            let size = size.unwrap_or(DEFAULT_SPOOL_SIZE) as u64;
            Some((directory.to_vec(), size))
        }
    };
    Ok(Some((settings, spool)))
}

fn read_number(name: &str, value: &[u8], most: u64) -> Result<u32, String> {
    parse_decimal(value)
        .filter(|number| (1..=most).contains(number))
        .and_then(|number| u32::try_from(number).ok())
        .ok_or_else(|| {
            format!(
                "{name} \"{}\" is not a number from 1 to {most}",
                shown(value)
            )
        })
}

/// Has nginx make a directory that its workers can write to.
fn add_directory(conf: &mut Conf, name: &[u8]) -> Result<PathBuf, String> {
    if name.is_empty() {
        return Err("spool= needs a directory".to_owned());
    }
    conf.add_directory(name)
}
