//! The text format of Prometheus, version 0.0.4.

use std::fmt::{Display, Write};

use shortlink_core::durations::{BOUNDS, Counted};

/// A text that metrics are added to, one after the other.
#[derive(Debug, Default)]
pub(super) struct Text(String);

/// Adds metrics to a [`Text`]: the type of each, its name, its help, and its only value or a function that adds its
/// samples.
macro_rules! metrics {
    ($text:expr; $($kind:ident $name:literal, $help:literal $(= $value:expr)? $(, $samples:expr)?;)+) => {
        $(
            $($text.single($name, stringify!($kind), $help, $value);)?
            $($crate::metrics::text::fill(
                &mut $text.metric($name, stringify!($kind), $help),
                $samples,
            );)?
        )+
    };
}
pub(super) use metrics;

/// Adds the samples of a metric.
pub(super) fn fill(samples: &mut Samples<'_>, fill: impl FnOnce(&mut Samples<'_>)) {
    fill(samples);
}

/// Takes the samples of a metric.
#[derive(Debug)]
pub(super) struct Samples<'t> {
    text: &'t mut String,
    name: &'static str,
}

impl Text {
    /// Begins a metric, followed by its samples.
    pub(super) fn metric(
        &mut self,
        name: &'static str,
        kind: &'static str,
        help: &'static str,
    ) -> Samples<'_> {
        // Writing to a string cannot fail.
        let _ = writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}");
        Samples {
            text: &mut self.0,
            name,
        }
    }

    /// Adds a metric with one sample. A value that cannot be computed leaves no heading behind.
    pub(super) fn single(
        &mut self,
        name: &'static str,
        kind: &'static str,
        help: &'static str,
        value: impl Display,
    ) {
        self.metric(name, kind, help).add(&[], value);
    }

    /// The whole text.
    pub(super) fn into_string(self) -> String {
        self.0
    }
}

impl Samples<'_> {
    /// Adds a sample.
    pub(super) fn add(&mut self, labels: &[(&str, &str)], value: impl Display) {
        self.add_part("", labels, value);
    }

    /// Adds the samples of a histogram.
    pub(super) fn add_durations(&mut self, labels: &[(&str, &str)], counted: &Counted) {
        let bounds = BOUNDS.iter().map(f64::to_string);
        let buckets = bounds.zip(counted.within);
        for (bound, count) in buckets.chain([("+Inf".to_owned(), counted.count)]) {
            let labels = [labels, &[("le", &bound)]].concat();
            self.add_part("_bucket", &labels, count);
        }
        self.add_part("_sum", labels, counted.seconds);
        self.add_part("_count", labels, counted.count);
    }

    fn add_part(&mut self, part: &str, labels: &[(&str, &str)], value: impl Display) {
        self.text.push_str(self.name);
        self.text.push_str(part);
        for (place, (label, text)) in labels.iter().enumerate() {
            self.text.push(if place == 0 { '{' } else { ',' });
            let text = text.replace('\\', "\\\\").replace('"', "\\\"");
            let text = text.replace('\n', "\\n");
            let _ = write!(self.text, "{label}=\"{text}\"");
        }
        if !labels.is_empty() {
            self.text.push('}');
        }
        let _ = writeln!(self.text, " {value}");
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use shortlink_core::durations::Durations;

    use super::*;

    #[test]
    fn labels_are_escaped() {
        let mut text = Text::default();
        metrics! { text;
            counter "a_total", "All." = 7;
            gauge "b", "Some.", |it| it.add(&[("one", "x\"y\\z\nw"), ("two", "")], 1.5);
        }
        assert_eq!(
            text.into_string(),
            "# HELP a_total All.\n# TYPE a_total counter\na_total 7\n\
             # HELP b Some.\n# TYPE b gauge\nb{one=\"x\\\"y\\\\z\\nw\",two=\"\"} 1.5\n"
        );
    }

    #[test]
    fn a_histogram_has_its_buckets_its_sum_and_its_count() {
        let durations = Durations::new();
        durations.add("x", Duration::from_millis(200));
        let mut text = Text::default();
        let mut samples = text.metric("d_seconds", "histogram", "How long.");
        for (name, counted) in durations.read() {
            samples.add_durations(&[("name", name)], &counted);
        }
        let text = text.into_string();
        let begin = "# HELP d_seconds How long.\n# TYPE d_seconds histogram\n\
                     d_seconds_bucket{name=\"x\",le=\"0.001\"} 0\n\
                     d_seconds_bucket{name=\"x\",le=\"0.0025\"} 0\n";
        assert!(text.starts_with(begin), "{text}");
        let end = "d_seconds_bucket{name=\"x\",le=\"10\"} 1\n\
                   d_seconds_bucket{name=\"x\",le=\"+Inf\"} 1\n\
                   d_seconds_sum{name=\"x\"} 0.2\nd_seconds_count{name=\"x\"} 1\n";
        assert!(text.ends_with(end), "{text}");
    }
}
