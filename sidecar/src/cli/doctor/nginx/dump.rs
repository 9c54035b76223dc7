//! nginx' configuration as `nginx -T` prints it: its directives and their places.

use std::path::PathBuf;

use super::super::super::nginx_conf::{End, Token, Tokens};

/// The beginning of the line that `nginx -T` prints before each file.
const FILE: &str = "\n# configuration file ";

/// A directive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in super::super) struct Directive {
    /// The file of the directive.
    pub(super) file: PathBuf,
    /// The name of the block around it with its parameters; empty outside of any.
    pub(super) block: String,
    /// Its name and parameters.
    pub(super) words: Vec<String>,
}

/// All directives.
#[derive(Debug, Default)]
pub(in super::super) struct Dump(Vec<Directive>);

impl Dump {
    /// Reads the output. Text that is no configuration is skipped: nginx has found it valid.
    pub(super) fn read(text: &str) -> Self {
        let mut found = Vec::new();
        for (path, text) in format!("\n{text}")
            .split(FILE)
            .filter_map(|file| file.split_once(":\n"))
        {
            let (mut tokens, mut words) = (Tokens::new(text), Vec::new());
            let mut blocks: Vec<String> = Vec::new();
            while let Ok(Some(token)) = tokens.next() {
                match token {
                    Token::Word(word) => words.push(String::from_utf8_lossy(&word).into_owned()),
                    Token::End(End::Close) => drop(blocks.pop()),
                    Token::End(_) if words.is_empty() => {}
                    Token::End(end) => {
                        let block = blocks.last().cloned().unwrap_or_default();
                        if end == End::Open {
                            blocks.push(words.join(" "));
                        }
                        found.push(Directive {
                            file: path.into(),
                            block,
                            words: std::mem::take(&mut words),
                        });
                    }
                }
            }
        }
        Self(found)
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
