//! Values of options.

use std::str::FromStr;

use jiff::Timestamp;
use jiff::civil::Date;
use jiff::tz::TimeZone;
use serde_json::{Map, Value, json};
use shortlink_api::kinds::Shape;

/// A code, as it is or at the end of a short URL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CodeText(pub(super) String);

impl CodeText {
    /// The path of its link, or of something of it.
    pub(super) fn path(&self, of: &str) -> String {
        format!("/v1/links/{}{of}", self.0)
    }
}

impl FromStr for CodeText {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let code = match text.split_once("://") {
            None => text,
            Some((_, rest)) => {
                let path = rest.split(['?', '#']).next().unwrap_or_default();
                let segments = path.trim_end_matches('/').split('/').skip(1);
                segments.last().unwrap_or_default()
            }
        };
        let is_of_code = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
        if code.is_empty() || !code.bytes().all(is_of_code) {
            return Err(
                "a code has only 0-9, A-Z, a-z, - and _; a short URL ends with one".to_owned(),
            );
        }
        Ok(Self(code.to_owned()))
    }
}

/// The id of a campaign.
pub(super) fn campaign_id(text: &str) -> Result<String, String> {
    if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
        return Err("an id has only 0-9, A-Z and a-z; `shortlink campaigns list` shows all".into());
    }
    Ok(text.to_owned())
}

/// A moment, or a day for its first moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum When {
    At(Timestamp),
    On(Date),
}

impl FromStr for When {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Ok(moment) = text.parse() {
            return Ok(Self::At(moment));
        }
        // Otherwise a day followed by any text would be accepted.
        let is_day = text.len() == 10;
        let day = text.parse().ok().filter(|_| is_day);
        day.map(Self::On).ok_or_else(|| {
            "give a time like 2030-12-31T23:59:59Z, or a day like 2030-12-31".to_owned()
        })
    }
}

impl When {
    /// The moment, as the API accepts it; days are those of a time zone.
    ///
    /// # Errors
    /// Fails for a day at the end of the calendar.
    pub(super) fn in_zone(self, zone: &TimeZone) -> Result<String, jiff::Error> {
        let moment = match self {
            Self::At(moment) => moment,
            Self::On(day) => zone.to_timestamp(day.at(0, 0, 0, 0))?,
        };
        Ok(moment.to_string())
    }
}

/// A moment, or a day for its first moment (UTC), as the API accepts it.
pub(super) fn moment(text: &str) -> Result<String, String> {
    let moment = text.parse::<When>()?.in_zone(&TimeZone::UTC);
    moment.map_err(|error| error.to_string())
}

/// Reads the option `dedupe`, as the API accepts it.
pub(super) fn dedupe(text: &str) -> Result<Value, String> {
    let value = Shape::Window.of_csv(text);
    value.map_err(|expected| format!("give {expected}"))
}

/// Reads JSON, an array or an object, or a file with it.
pub(super) fn json_or_file(text: &str) -> Result<Value, String> {
    let read = match text.trim_start().starts_with(['[', '{']) {
        true => text.to_owned(),
        false => std::fs::read_to_string(text)
            .map_err(|error| format!("give JSON, or the name of a file with JSON: {error}"))?,
    };
    serde_json::from_str(&read).map_err(|error| format!("it is not JSON: {error}"))
}

/// A name and a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Pair {
    name: String,
    value: String,
}

impl FromStr for Pair {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once('=') {
            Some((name, value)) if !name.is_empty() => Ok(Self {
                name: name.to_owned(),
                value: value.to_owned(),
            }),
            _ => Err("give NAME=VALUE".to_owned()),
        }
    }
}

/// Pairs as an object.
pub(super) fn object(pairs: &[Pair]) -> Value {
    let members = pairs.iter();
    let members: Map<String, Value> = members
        .map(|pair| (pair.name.clone(), json!(pair.value)))
        .collect();
    Value::Object(members)
}

/// The length of codes in characters: a number, or the least and the greatest.
pub(super) fn code_length(text: &str) -> Result<Value, String> {
    let number = |text: &str| text.parse::<u8>().ok();
    let length = match text.split_once('-') {
        None => number(text).map(|length| json!(length)),
        Some((min, max)) => number(min)
            .zip(number(max))
            .map(|(min, max)| json!({ "min": min, "max": max })),
    };
    length.ok_or_else(|| "give a number, or two like 7-9".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_given_alone_or_in_a_short_url() {
        for (text, code) in [
            ("pM69SXfs", "pM69SXfs"),
            ("https://s.example.com/pM69SXfs", "pM69SXfs"),
            ("http://localhost:8080/pM69SXfs/?a=b#c", "pM69SXfs"),
            ("https://s.example.com/p/pM69SXfs", "pM69SXfs"),
        ] {
            assert_eq!(text.parse(), Ok(CodeText(code.to_owned())), "{text}");
        }
        for text in [
            "",
            "a b",
            "..",
            "a/b",
            "https://s.example.com",
            "https://s.example.com/",
        ] {
            assert!(text.parse::<CodeText>().is_err(), "{text}");
        }
    }

    #[test]
    fn moments_are_times_or_days() {
        for (text, moment_) in [
            ("2030-12-31T23:59:59Z", "2030-12-31T23:59:59Z"),
            ("2030-12-31T23:59:59+01:00", "2030-12-31T22:59:59Z"),
            ("2030-12-31", "2030-12-31T00:00:00Z"),
        ] {
            assert_eq!(moment(text).as_deref(), Ok(moment_));
        }
        for text in ["", "tomorrow", "2030-13-01", "2030-12-31T23:59:59", "12"] {
            assert!(moment(text).is_err(), "{text}");
        }
    }

    #[test]
    fn pairs_and_lengths_are_read() {
        let pairs = ["a=b=c", "d="].map(|text| text.parse().expect("a pair"));
        assert_eq!(object(&pairs), json!({"a": "b=c", "d": ""}));
        assert!("=a".parse::<Pair>().is_err() && "a".parse::<Pair>().is_err());
        assert_eq!(code_length("7"), Ok(json!(7)));
        assert_eq!(code_length("7-9"), Ok(json!({"min": 7, "max": 9})));
        assert!(code_length("7-").is_err() && code_length("x").is_err());
    }
}
