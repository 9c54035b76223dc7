//! A page of metrics, as Prometheus reads it.

use std::collections::{BTreeMap, BTreeSet};

/// The samples of a page, with names and labels.
#[derive(Clone, Debug, Default)]
pub struct Page {
    samples: Vec<Sample>,
    /// The metrics that the page describes, in its order.
    pub metrics: Vec<Metric>,
}

/// A metric as a page describes it.
#[derive(Clone, Debug)]
pub struct Metric {
    /// The name; that of a histogram without `_bucket`, `_sum` and `_count`.
    pub name: String,
    /// `counter`, `gauge` or `histogram`.
    pub kind: String,
    /// The text of `HELP`.
    pub help: String,
}

/// One number of a page.
#[derive(Clone, Debug)]
pub struct Sample {
    /// The name, such as `shortlink_requests_total`.
    pub name: String,
    /// The labels with their values.
    pub labels: BTreeMap<String, String>,
    /// The number.
    pub value: f64,
}

impl Page {
    /// Reads a page.
    ///
    /// # Panics
    /// When it is none.
    pub fn read(text: &str) -> Self {
        let described = text.split("# HELP ").skip(1).map(|rest| {
            let (name, rest) = rest.split_once(' ').expect("a help text");
            let (help, rest) = rest.split_once('\n').expect("the end of a line");
            let kind = rest.strip_prefix(&format!("# TYPE {name} "));
            Metric {
                name: name.to_owned(),
                kind: kind
                    .and_then(|it| it.lines().next())
                    .expect("a type")
                    .to_owned(),
                help: help.to_owned(),
            }
        });
        let metrics = described.collect();
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        let samples = lines.map(|line| {
            let (series, value) = line.rsplit_once(' ').expect("a number");
            let (name, labels) = series.split_once('{').unwrap_or((series, "}"));
            let labels = labels.strip_suffix('}').expect("the end of the labels");
            Sample {
                name: name.to_owned(),
                labels: matchers(labels)
                    .map(|(label, _, value)| (label.to_owned(), value.to_owned()))
                    .collect(),
                value: value.parse().expect("a number"),
            }
        });
        Self {
            samples: samples.collect(),
            metrics,
        }
    }

    /// The names that occur.
    pub fn names(&self) -> BTreeSet<&str> {
        let names = self.samples.iter().map(|sample| &*sample.name);
        names.collect()
    }

    /// The samples of this name.
    pub fn of<'p>(&'p self, name: &'p str) -> impl Iterator<Item = &'p Sample> {
        self.samples.iter().filter(move |it| it.name == name)
    }

    /// The sum of the samples of this name.
    pub fn sum(&self, name: &str) -> f64 {
        self.of(name).map(|sample| sample.value).sum()
    }
}

/// The parts of what stands between braces: label, operator and value. No value here holds a comma
/// or a quotation mark.
pub fn matchers(text: &str) -> impl Iterator<Item = (&str, &str, &str)> {
    let parts = text.split(',').map(str::trim);
    parts.filter(|part| !part.is_empty()).map(|part| {
        let (left, value) = part.split_once('"').expect("a value in quotes");
        let value = value.strip_suffix('"').expect("a value in quotes");
        let at = left.find(['=', '!']).expect("an operator");
        (left[..at].trim(), left[at..].trim(), value)
    })
}
