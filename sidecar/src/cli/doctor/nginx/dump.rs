//! nginx' configuration as `nginx -T` prints it: its directives and their places.

use std::path::PathBuf;

/// The line that `nginx -T` prints before each file.
const FILE: &str = "# configuration file ";

/// A directive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in super::super) struct Directive {
    /// The file of the directive.
    pub(super) file: PathBuf,
    /// The name of the block around it; empty outside of any.
    pub(super) block: String,
    /// Its name and parameters.
    pub(super) words: Vec<String>,
}

/// All directives.
#[derive(Debug, Default)]
pub(in super::super) struct Dump(Vec<Directive>);

impl Dump {
    /// Reads the output. Lines that are no configuration are skipped: nginx has found it valid.
    pub(super) fn read(text: &str) -> Self {
        let mut reader = Reader::default();
        for line in text.lines() {
            if let Some(path) = line.strip_prefix(FILE) {
                // A file ends no directive of another, but its text begins anew.
                reader.file = path.trim_end_matches(':').into();
                continue;
            }
            reader.line(line);
        }
        Self(reader.found)
    }

    /// The directives of a name.
    pub(super) fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a Directive> {
        self.0.iter().filter(move |it| it.words[0] == name)
    }

    /// The first parameter of a directive in a block.
    pub(super) fn value(&self, block: &str, name: &str) -> Option<&str> {
        let mut all = self.0.iter();
        let found = all.find(|it| it.block == block && it.words[0] == name)?;
        found.words.get(1).map(String::as_str)
    }

    /// The file with the first directive of a name.
    pub(in super::super) fn file_of(&self, name: &str) -> Option<PathBuf> {
        let found = self.0.iter().find(|it| it.words[0] == name)?;
        Some(found.file.clone())
    }
}

#[derive(Default)]
struct Reader {
    file: PathBuf,
    blocks: Vec<String>,
    words: Vec<String>,
    word: Option<String>,
    quote: Option<char>,
    found: Vec<Directive>,
}

impl Reader {
    fn line(&mut self, line: &str) {
        let mut characters = line.chars();
        while let Some(character) = characters.next() {
            if let Some(quote) = self.quote {
                match character {
                    '\\' => self.word.get_or_insert_default().extend(characters.next()),
                    _ if character == quote => self.quote = None,
                    _ => self.word.get_or_insert_default().push(character),
                }
                continue;
            }
            match character {
                '#' if self.word.is_none() => break,
                '"' | '\'' if self.word.is_none() => {
                    self.quote = Some(character);
                    self.word = Some(String::new());
                }
                ';' => {
                    self.end_word();
                    self.end(false);
                }
                // A variable in braces is no block.
                '{' if !self.word.as_deref().unwrap_or_default().ends_with('$') => {
                    self.end_word();
                    self.end(true);
                }
                '}' if self.word.is_none() => {
                    self.blocks.pop();
                }
                _ if character.is_whitespace() => self.end_word(),
                _ => self.word.get_or_insert_default().push(character),
            }
        }
        if self.quote.is_none() {
            self.end_word();
        }
    }

    fn end_word(&mut self) {
        self.words.extend(self.word.take());
    }

    fn end(&mut self, begins_block: bool) {
        let words = std::mem::take(&mut self.words);
        let Some(name) = words.first().cloned() else {
            return;
        };
        self.found.push(Directive {
            file: self.file.clone(),
            block: self.blocks.last().cloned().unwrap_or_default(),
            words,
        });
        if begins_block {
            self.blocks.push(name);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directives_are_found_with_their_file_and_block() {
        let dump = Dump::read(
            "# configuration file /etc/nginx/nginx.conf:\nload_module \"a b.so\"; # c; d\n\
             http {\n  log_format x '$a {' \"b\\\"c\";\n  set $x ${a}b;\n\
             # configuration file /etc/nginx/s.conf:\nshortlink_redis {\n server 1:2; prefix x: ;}\n\
             shortlink_visits on\n  streams=4;\n}\n",
        );
        assert_eq!(dump.value("", "load_module"), Some("a b.so"));
        assert_eq!(dump.value("shortlink_redis", "prefix"), Some("x:"));
        assert_eq!(dump.value("http", "prefix"), None);
        assert_eq!(dump.value("http", "set"), Some("$x"));
        let visits = dump.all("shortlink_visits").next().expect("a directive");
        assert_eq!(visits.words, ["shortlink_visits", "on", "streams=4"]);
        assert_eq!(visits.file, PathBuf::from("/etc/nginx/s.conf"));
        let format = dump.all("log_format").next().expect("a directive");
        assert_eq!(format.words, ["log_format", "x", "$a {", "b\"c"]);
        assert_eq!(
            dump.file_of("shortlink_redis"),
            Some("/etc/nginx/s.conf".into())
        );
    }
}
