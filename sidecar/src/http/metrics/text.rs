//! The text format of Prometheus, version 0.0.4.

use std::fmt::{Display, Write};

/// What a number means to Prometheus.
#[derive(Clone, Copy, Debug)]
pub(super) enum Kind {
    /// One that only grows while the process lives.
    Counter,
    /// One that says how things are.
    Gauge,
}

/// A text that metrics are added to, one after the other.
#[derive(Debug, Default)]
pub(super) struct Text(String);

/// Takes the samples of a metric.
#[derive(Debug)]
pub(super) struct Samples<'t> {
    text: &'t mut String,
    name: &'static str,
}

impl Text {
    /// Begins a metric, whose samples follow.
    pub(super) fn metric(
        &mut self,
        name: &'static str,
        kind: Kind,
        help: &'static str,
    ) -> Samples<'_> {
        let kind = match kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
        };
        // Into a string nothing fails.
        let _ = writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}");
        Samples {
            text: &mut self.0,
            name,
        }
    }

    /// Adds a counter that has one sample.
    pub(super) fn counter(&mut self, name: &'static str, help: &'static str, value: u64) {
        self.metric(name, Kind::Counter, help).add(&[], value);
    }

    /// Adds a gauge that has one sample.
    pub(super) fn gauge(&mut self, name: &'static str, help: &'static str, value: impl Display) {
        self.metric(name, Kind::Gauge, help).add(&[], value);
    }

    /// The whole text.
    pub(super) fn into_string(self) -> String {
        self.0
    }
}

impl Samples<'_> {
    /// Adds a sample.
    pub(super) fn add(&mut self, labels: &[(&str, &str)], value: impl Display) {
        self.text.push_str(self.name);
        for (place, (label, text)) in labels.iter().enumerate() {
            self.text.push(if place == 0 { '{' } else { ',' });
            let _ = write!(self.text, "{label}=\"");
            for character in text.chars() {
                match character {
                    '\\' | '"' => self.text.extend(['\\', character]),
                    '\n' => self.text.push_str("\\n"),
                    _ => self.text.push(character),
                }
            }
            self.text.push('"');
        }
        if !labels.is_empty() {
            self.text.push('}');
        }
        let _ = writeln!(self.text, " {value}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_escaped() {
        let mut text = Text::default();
        text.counter("a_total", "All.", 7);
        let mut samples = text.metric("b", Kind::Gauge, "Some.");
        samples.add(&[("one", "x\"y\\z\nw"), ("two", "")], 1.5);
        assert_eq!(
            text.into_string(),
            "# HELP a_total All.\n# TYPE a_total counter\na_total 7\n\
             # HELP b Some.\n# TYPE b gauge\nb{one=\"x\\\"y\\\\z\\nw\",two=\"\"} 1.5\n"
        );
    }
}
