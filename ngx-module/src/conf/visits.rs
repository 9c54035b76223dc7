//! `shortlink_visits`: whether followed links are recorded, and how.

use std::ffi::{OsStr, c_char, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use ngx::ffi::{
    NGX_OK, ngx_add_path, ngx_command_t, ngx_conf_t, ngx_int_t, ngx_path_t, ngx_pcalloc,
};
use resolver::VisitSettings;
use resolver::vocabulary::number::parse_decimal;

use super::MainConf;
use super::words::{Set, finish, prefix_path, read_size, read_time, shown, words};
use crate::spool::SpoolConf;

/// The most bytes that the files may take unless it is set.
const DEFAULT_SPOOL_SIZE: usize = 1 << 30;

/// The least and most that they may take.
const SPOOL_SIZES: (usize, usize) = (1 << 20, 1 << 40);

/// `shortlink_visits on`.
#[derive(Clone, Debug)]
pub(crate) struct VisitsConf {
    pub(crate) settings: VisitSettings,
    pub(crate) spool: Option<SpoolConf>,
}

pub(super) unsafe extern "C" fn set(
    cf: *mut ngx_conf_t,
    _command: *mut ngx_command_t,
    conf: *mut c_void,
) -> *mut c_char {
    // SAFETY: nginx calls this with this module's main configuration.
    unsafe {
        let main = &mut *conf.cast::<MainConf>();
        let set = read(cf, main);
        finish(cf, set)
    }
}

unsafe fn read(cf: *mut ngx_conf_t, main: &mut MainConf) -> Set {
    if std::mem::replace(&mut main.visits_given, true) {
        return Err("\"shortlink_visits\" is given twice".to_owned());
    }
    // SAFETY: the caller's configuration is valid.
    let words = unsafe { words(cf) };
    let (&switch, parameters) = words[1..].split_first().ok_or("on or off is missing")?;
    match switch {
        b"on" => {}
        b"off" if parameters.is_empty() => return Ok(()),
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
        (Some(directory), size) => Some(SpoolConf {
            // SAFETY: the caller's configuration is valid, and the value one of its words.
            directory: unsafe { add_directory(cf, directory) }?,
            size: size.unwrap_or(DEFAULT_SPOOL_SIZE) as u64,
        }),
    };
    main.visits = Some(VisitsConf { settings, spool });
    Ok(())
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

/// Has nginx make a directory that its workers can write to, as it does for its own.
unsafe fn add_directory(cf: *mut ngx_conf_t, name: &[u8]) -> Result<PathBuf, String> {
    if name.is_empty() {
        return Err("spool= needs a directory".to_owned());
    }
    // SAFETY: the caller's configuration is valid; all zeros is how nginx' own modules begin a
    // path. nginx keeps the structure, which lives in the configuration's pool.
    unsafe {
        let full = prefix_path(cf, name)?;
        let mut path = ngx_pcalloc((*cf).pool, size_of::<ngx_path_t>()).cast::<ngx_path_t>();
        if path.is_null() {
            return Err("there is no memory".to_owned());
        }
        (*path).name = full;
        (*path).conf_file = (*(*cf).conf_file).file.name.data;
        (*path).line = (*(*cf).conf_file).line;
        if ngx_add_path(cf, &mut path) != NGX_OK as ngx_int_t {
            return Err(format!("the directory \"{}\" can't be used", shown(name)));
        }
        Ok(PathBuf::from(OsStr::from_bytes(full.as_bytes())))
    }
}
