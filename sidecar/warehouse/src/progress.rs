//! The progress of an export.

use serde::{Deserialize, Serialize};

/// The version of the note's format.
const VERSION: u32 = 1;

/// The progress of an export into one destination. Visits are named by their numbers, in the order of which they are
/// exported.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Progress {
    version: u32,
    /// The identity of the database.
    pub database: String,
    /// The last visit of the parts whose files are complete.
    pub exported: i64,
    /// The last visit of the part that is being written; the same as `exported` if none is.
    pub writing: i64,
}

impl Progress {
    /// The name of the note. Programs that read all files below a directory skip this one.
    pub const NAME: &str = "_shortlink.json";

    /// No visit of a database is exported.
    pub fn start(database: String) -> Self {
        Self {
            version: VERSION,
            database,
            exported: 0,
            writing: 0,
        }
    }

    /// Reads a note; a text says what is wrong with it.
    pub(crate) fn read(note: &[u8]) -> Result<Self, String> {
        let progress: Self = serde_json::from_slice(note).map_err(|error| error.to_string())?;
        if progress.version != VERSION {
            return Err(format!("its version is {}", progress.version));
        }
        if progress.exported < 0 || progress.writing < progress.exported {
            return Err("its numbers contradict each other".to_owned());
        }
        Ok(progress)
    }

    pub(crate) fn write(&self) -> Vec<u8> {
        let mut text = serde_json::to_vec(self).unwrap_or_default();
        text.push(b'\n');
        text
    }

    /// The part that is being written: behind the first number, up to the second.
    pub fn part(&self) -> Option<(i64, i64)> {
        (self.writing > self.exported).then_some((self.exported, self.writing))
    }

    /// Notes that the part is complete, and that the next one ends with the visit `writing`.
    pub fn advance(&mut self, writing: i64) {
        self.exported = self.writing;
        self.writing = writing.max(self.exported);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_is_noted_until_the_next_one() {
        let mut progress = Progress::start("a".to_owned());
        assert_eq!(progress.part(), None);
        progress.advance(10);
        assert_eq!(progress.part(), Some((0, 10)));
        let read = Progress::read(&progress.write());
        assert_eq!(read.as_ref(), Ok(&progress));
        progress.advance(4);
        assert_eq!((progress.part(), progress.exported), (None, 10));
    }

    #[test]
    fn other_notes_are_refused() {
        for note in [
            "",
            "{}",
            r#"{"version":2,"database":"a","exported":0,"writing":0}"#,
            r#"{"version":1,"database":"a","exported":2,"writing":1}"#,
            r#"{"version":1,"database":"a","exported":-2,"writing":1}"#,
        ] {
            assert!(Progress::read(note.as_bytes()).is_err(), "{note}");
        }
    }
}
