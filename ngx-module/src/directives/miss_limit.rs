//! `shortlink_miss_limit`: a limit for addresses that request unknown codes.

use resolver::limit::{Limits, MissLimit, Rate};
use resolver::vocabulary::number::parse_decimal;

use crate::directives::words::{Set, read_size, read_variable, refuse_twice, shown};
use crate::nginx::conf::Conf;
use crate::nginx::variable::VariableIndex;
use crate::settings::Settings;
use crate::settings::zones::{MissLimitConf, MissLimiting};

/// The least and most bytes that it takes.
const LEAST_BYTES: usize = 64 << 10;
const MOST_BYTES: usize = 1 << 30;

/// The defaults of the parameters; a network has so many times the rate and the burst of an
/// address.
const DEFAULT_BYTES: usize = 1 << 20;
const DEFAULT_BURST: u32 = 30;
const NETWORK_FACTOR: u32 = 20;

/// The parameters.
struct Read {
    limits: Limits,
    name: String,
    bytes: usize,
    is_strict: bool,
    exempt: Option<VariableIndex>,
}

/// `shortlink_miss_limit`
pub(crate) fn set(conf: &mut Conf) -> Set {
    let location = conf.location::<Settings>().ok_or("there is no location")?;
    if location.miss_limit.is_some() {
        return Err("\"shortlink_miss_limit\" is given twice here".to_owned());
    }
    let limit = match read(conf)? {
        None => None,
        Some(read) => Some(MissLimitConf {
            limits: read.limits,
            name: read.name,
            is_strict: read.is_strict,
            bytes: read.bytes,
            exempt: read.exempt,
        }),
    };
    let is_http_block = conf.is_http_block();
    let main = conf
        .main_mut::<Settings>()
        .ok_or("there is no http block")?;
    let limiting = match limit {
        None => MissLimiting::Off,
        Some(limit) => {
            main.miss_limits.push(limit);
            MissLimiting::By(main.miss_limits.len() - 1)
        }
    };
    if is_http_block {
        main.miss_limit = limiting;
    }
    if let Some(location) = conf.location_mut::<Settings>() {
        location.miss_limit = Some(limiting);
    }
    Ok(())
}

/// Reads the parameters; `None` when it is off.
fn read(conf: &Conf) -> Result<Option<Read>, String> {
    let words = conf.words();
    if words[1..] == [b"off"] {
        return Ok(None);
    }
    if words.contains(&&b"off"[..]) {
        return Err("\"shortlink_miss_limit off\" takes no parameters".to_owned());
    }
    let (mut rate, mut burst, mut bytes) = (None, DEFAULT_BURST, DEFAULT_BYTES);
    let (mut network_rate, mut network_burst) = (None, None);
    let (mut is_strict, mut exempt) = (false, None);
    refuse_twice("shortlink_miss_limit", &words[1..])?;
    for word in &words[1..] {
        if let Some(value) = word.strip_prefix(b"rate=") {
            rate = Some(read_rate("rate", value)?);
        } else if let Some(value) = word.strip_prefix(b"burst=") {
            burst = read_burst("burst", value)?;
        } else if let Some(value) = word.strip_prefix(b"network_rate=") {
            network_rate = Some(read_rate("network_rate", value)?);
        } else if let Some(value) = word.strip_prefix(b"network_burst=") {
            network_burst = Some(read_burst("network_burst", value)?);
        } else if let Some(value) = word.strip_prefix(b"size=") {
            bytes = read_size("size", value, LEAST_BYTES, MOST_BYTES)?;
        } else if let Some(value) = word.strip_prefix(b"exempt=") {
            exempt = Some(read_variable(conf, "exempt=", value)?);
        } else if *word == b"strict" {
            is_strict = true;
        } else {
            return Err(format!(
                "unknown parameter \"{}\" of \"shortlink_miss_limit\": allowed are rate=, burst=, \
                 network_rate=, network_burst=, size=, exempt= and strict",
                shown(word)
            ));
        }
    }
    let rate = rate.ok_or("\"shortlink_miss_limit\" needs rate=, such as rate=60r/m")?;
    let network_rate = network_rate.unwrap_or(rate.times(NETWORK_FACTOR.into()));
    let network_burst = network_burst.unwrap_or_else(|| {
        let burst = burst.saturating_mul(NETWORK_FACTOR);
        burst.min(network_rate.most_burst())
    });
    let limits = Limits {
        address: limit("burst", rate, burst)?,
        network: limit("network_burst", network_rate, network_burst)?,
    };
    if !limits.are_ordered() {
        return Err(format!(
            "a network needs at least the rate and the burst of one address: network_rate= at \
             least rate=, and network_burst= (here {network_burst}) at least burst= (here {burst})"
        ));
    }
    let name = format!(
        "{}ms {burst} {}ms {network_burst} {}k",
        rate.interval(),
        network_rate.interval(),
        bytes >> 10
    );
    Ok(Some(Read {
        limits,
        name,
        bytes,
        is_strict,
        exempt,
    }))
}

fn read_rate(name: &str, value: &[u8]) -> Result<Rate, String> {
    Rate::parse(value).ok_or_else(|| {
        format!(
            "{name} \"{}\" is not a rate from 1r/m to {most}r/s, such as {name}=60r/m or {name}=1r/s",
            shown(value),
            most = Rate::MOST_PER_SECOND
        )
    })
}

fn read_burst(name: &str, value: &[u8]) -> Result<u32, String> {
    parse_decimal(value)
        .and_then(|number| u32::try_from(number).ok())
        .filter(|&burst| burst > 0)
        .ok_or_else(|| {
            format!(
                "{name} \"{}\" is not a number from 1 to {}",
                shown(value),
                u32::MAX
            )
        })
}

fn limit(name: &str, rate: Rate, burst: u32) -> Result<MissLimit, String> {
    MissLimit::new(rate, burst).ok_or_else(|| {
        format!(
            "{name}={burst} takes longer than {} hours to be forgotten at this rate: at most {} \
             is allowed",
            MissLimit::LONGEST_WINDOW / 3_600_000,
            rate.most_burst()
        )
    })
}
