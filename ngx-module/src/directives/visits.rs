//! `shortlink_visits`: the recording of visits.

use std::path::PathBuf;

use resolver::VisitSettings;
use resolver::vocabulary::number::parse_decimal;

use crate::directives::words::{Set, read_size, read_time, read_variable, refuse_twice, shown};
use crate::nginx::conf::Conf;
use crate::settings::{Recording, Settings, SpoolConf, VisitsConf};

/// The most bytes that the files may take unless it is set.
const DEFAULT_SPOOL_SIZE: usize = 1 << 30;

/// The least and most that they may take.
const SPOOL_SIZES: (usize, usize) = (1 << 20, 1 << 40);

/// `shortlink_visits`
pub(crate) fn set(conf: &mut Conf) -> Set {
    let location = conf.location::<Settings>().ok_or("there is no location")?;
    if location.recording.is_some() {
        return Err("\"shortlink_visits\" is given twice here".to_owned());
    }
    let words = conf.words();
    let (&switch, parameters) = words[1..].split_first().ok_or("on or off is missing")?;
    let recording = match switch {
        b"on" => read_condition(conf, parameters)?,
        b"off" if parameters.is_empty() => Recording::None,
        b"off" => return Err("\"shortlink_visits off\" takes no parameters".to_owned()),
        _ => {
            return Err(format!(
                "\"shortlink_visits\" is on or off, not \"{}\"",
                shown(switch)
            ));
        }
    };
    let parameters: Vec<&[u8]> = parameters
        .iter()
        .copied()
        .filter(|parameter| !parameter.starts_with(IF))
        .collect();
    if let Some(parameter) = parameters.first()
        && !conf.is_http_block()
    {
        return Err(format!(
            "parameter \"{}\" of \"shortlink_visits\" is for the http block: in a server or \
             location, only if= is allowed",
            shown(parameter)
        ));
    }
    if switch == b"on" && conf.is_http_block() {
        let (settings, spool) = read(&parameters)?;
        let spool = match spool {
            None => None,
            Some((directory, size)) => Some(SpoolConf {
                directory: add_directory(conf, &directory)?,
                size,
            }),
        };
        if let Some(main) = conf.main_mut::<Settings>() {
            main.visits = Some(VisitsConf { settings, spool });
        }
    }
    if let Some(location) = conf.location_mut::<Settings>() {
        location.recording = Some(recording);
    }
    Ok(())
}

/// The beginning of the parameter with a condition.
const IF: &[u8] = b"if=";

fn read_condition(conf: &Conf, parameters: &[&[u8]]) -> Result<Recording, String> {
    refuse_twice("shortlink_visits", parameters)?;
    let value = parameters.iter().find_map(|it| it.strip_prefix(IF));
    Ok(match value {
        None => Recording::All,
        Some(value) => Recording::If(read_variable(conf, "if=", value)?),
    })
}

/// The settings, and the directory of the files with its size.
type Read = (VisitSettings, Option<(Vec<u8>, u64)>);

fn read(parameters: &[&[u8]]) -> Result<Read, String> {
    let mut settings = VisitSettings::default();
    let (mut directory, mut spool_size) = (None, None);
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
                "unknown parameter \"{}\" of \"shortlink_visits\": allowed are if=, batch=, \
                 bytes=, interval=, buffer=, spool=, spool_size= and streams=",
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
    Ok((settings, spool))
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
