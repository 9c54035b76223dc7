//! Reading `shortlink_domains` out of a file of nginx' configuration, as nginx does.

use std::path::{Path, PathBuf};

use vocabulary::domains::Domains;

use super::super::nginx_conf::{End, Refusal, Token, Tokens};

/// The directive whose block is read.
const DIRECTIVE: &[u8] = b"shortlink_domains";

/// The most files that include each other; nginx has a limit of open files instead.
const DEEPEST: usize = 16;

/// Reads the table; `directory` is that of nginx.conf, which relative names refer to.
///
/// # Errors
/// The file and the line that nginx would refuse, and the reason.
pub(super) fn read(file: &Path, text: &str, directory: &Path) -> Result<Domains, String> {
    let mut table = Table {
        directory,
        domains: None,
    };
    table.read(file, text, 0)?;
    table.domains.ok_or_else(|| {
        let file = file.display();
        format!("{file}: there is no \"shortlink_domains\" block in the file")
    })
}

/// A table that is being read.
struct Table<'a> {
    directory: &'a Path,
    domains: Option<Domains>,
}

impl Table<'_> {
    /// Reads a file, which the block includes unless `depth` is 0.
    fn read(&mut self, file: &Path, text: &str, depth: usize) -> Result<(), String> {
        let at = |refusal: Refusal| {
            let Refusal { line, reason } = refusal;
            format!("{}:{line}: {reason}", file.display())
        };
        let mut tokens = Tokens::new(text);
        // The enclosing blocks, and for each whether it is the one in question.
        let mut blocks = Vec::new();
        while let Some((words, end)) = next(&mut tokens).map_err(at)? {
            let line = tokens.line;
            let refused = |reason: String| at(Refusal { line, reason });
            let is_within = blocks.last().copied().unwrap_or(depth > 0);
            let lines: Vec<&[u8]> = words.iter().map(|word| &word[..]).collect();
            match (end, &lines[..]) {
                (End::Semicolon, [b"include", pattern]) if is_within => {
                    let files = self.included(pattern).map_err(refused)?;
                    if depth == DEEPEST {
                        return Err(refused("the files include each other".to_owned()));
                    }
                    for (file, text) in files {
                        self.read(&file, &text, depth + 1)?;
                    }
                }
                (End::Semicolon, lines) if is_within => {
                    let domains = self.domains.get_or_insert_default();
                    let to_ascii = |name: &str| idna::domain_to_ascii(name).ok();
                    let added = domains.add(lines, to_ascii);
                    added.map_err(|it| refused(it.to_string()))?;
                }
                (End::Semicolon, _) => {}
                (End::Open, lines) => {
                    let is_it = *lines == [DIRECTIVE];
                    if is_it && self.domains.is_some() {
                        return Err(refused("\"shortlink_domains\" is given twice".to_owned()));
                    }
                    if is_it {
                        self.domains = Some(Domains::default());
                    }
                    blocks.push(is_it);
                }
                (End::Close, _) => match (blocks.pop(), &mut self.domains) {
                    (None, _) => return Err(refused("unexpected \"}\"".to_owned())),
                    (Some(true), Some(domains)) => {
                        let whole = domains.finish().and_then(|()| domains.certificates());
                        whole.map_err(|it| refused(it.to_string()))?;
                    }
                    _ => {}
                },
            }
        }
        if !blocks.is_empty() {
            return Err(at(tokens.refuse("a block is not closed: \"}\" is missing")));
        }
        Ok(())
    }

    /// The files that `include` names, in the order in which nginx reads them. Like nginx, it finds none for a name with
    /// wildcards that matches nothing.
    fn included(&self, pattern: &[u8]) -> Result<Vec<(PathBuf, String)>, String> {
        let pattern = String::from_utf8_lossy(pattern);
        let path = self.directory.join(&*pattern);
        let is_wild = |text: &str| text.contains(['*', '?', '[']);
        if !is_wild(&pattern) {
            return Ok(vec![file(path)?]);
        }
        let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else {
            return Err(format!("include \"{pattern}\" names no file"));
        };
        let name = name.to_string_lossy();
        if is_wild(&folder.to_string_lossy()) || name.contains('[') {
            return Err(format!(
                "include \"{pattern}\" can't be followed here: only * and ? in the name of the file can"
            ));
        }
        let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
        let mut paths: Vec<PathBuf> = entries
            .filter(|entry| is_match(name.as_bytes(), entry.file_name().as_encoded_bytes()))
            .map(|entry| entry.path())
            .collect();
        paths.sort();
        paths.into_iter().map(file).collect()
    }
}

/// A file and its text.
fn file(path: PathBuf) -> Result<(PathBuf, String), String> {
    match std::fs::read_to_string(&path) {
        Ok(text) => Ok((path, text)),
        Err(error) => Err(format!("{} can't be read: {error}", path.display())),
    }
}

/// Returns whether a name has the form of a pattern, as a shell says: `*` is any text, `?` one character, and a name that
/// begins with a dot needs one in the pattern.
fn is_match(pattern: &[u8], name: &[u8]) -> bool {
    fn matches(pattern: &[u8], name: &[u8]) -> bool {
        match (pattern, name) {
            ([], []) => true,
            ([b'*', rest @ ..], _) => {
                matches(rest, name) || (!name.is_empty() && matches(pattern, &name[1..]))
            }
            ([b'?', rest @ ..], [_, more @ ..]) => matches(rest, more),
            ([byte, rest @ ..], [other, more @ ..]) => byte == other && matches(rest, more),
            _ => false,
        }
    }
    (!name.starts_with(b".") || pattern.starts_with(b".")) && matches(pattern, name)
}

/// The words of a directive, and its end.
type Directive = (Vec<Vec<u8>>, End);

/// The next directive; `None` at the end of the file.
fn next(tokens: &mut Tokens<'_>) -> Result<Option<Directive>, Refusal> {
    let mut words = Vec::new();
    loop {
        let end = match tokens.next()? {
            Some(Token::Word(word)) => {
                words.push(word);
                continue;
            }
            Some(Token::End(end)) => end,
            None if words.is_empty() => return Ok(None),
            None => {
                let reason = "unexpected end of the file: \";\" or \"}\" is missing";
                return Err(tokens.refuse(reason));
            }
        };
        if (end == End::Close) != words.is_empty() {
            let found = match end {
                End::Semicolon => ';',
                End::Open => '{',
                End::Close => '}',
            };
            return Err(tokens.refuse(&format!("unexpected \"{found}\"")));
        }
        return Ok(Some((words, end)));
    }
}

#[cfg(test)]
mod tests {
    use vocabulary::domains::Retirement;

    use super::*;

    fn read_text(text: &str) -> Result<Domains, String> {
        read(Path::new("t"), text, Path::new("/"))
    }

    fn refusal(text: &str) -> (usize, String) {
        let refusal = read_text(text).expect_err(text);
        let (line, reason) = refusal["t:".len()..].split_once(": ").expect("a reason");
        (line.parse().expect("a line"), reason.to_owned())
    }

    #[test]
    fn the_block_is_found_among_others() {
        let text = "# a comment; {\nupstream a {\n server 127.0.0.1:1;\n}\nshortlink_domains {\n\
                    \"a.example\" active scheme=http;# c\n  'b.example'\n serving ;\nlänk.example \
                    retired 'target=https://x.example/?a\\';b'; }\nserver { location / { } }\n";
        let domains = read_text(text).expect("a table");
        assert_eq!(domains.names(), "a.example,b.example,xn--lnk-qla.example");
        assert_eq!(domains.bases(), "http://a.example");
        let target = Retirement::Target("https://x.example/?a';b".to_owned());
        assert_eq!(domains.entries()[2].retirement(), Some(&target));
    }

    #[test]
    fn what_nginx_refuses_is_refused_in_its_line() {
        let within = |line: &str| refusal(&format!("shortlink_domains {{\n{line}\n}}\n"));
        assert!(within("a.example on;").1.contains("\"on\""));
        assert_eq!(within("a.example active;\na.example serving;").0, 3);
        assert_eq!(within("a.example serving;").0, 3);
        assert_eq!(within("a.example active").1, "unexpected \"}\"");
        assert_eq!(within("a.example active;}").1, "unexpected \"}\"");
        assert_eq!(within("\"a.example active;").1, "a quote is not closed");
        let missing = read_text("server { }").expect_err("no block");
        assert!(missing.contains("no \"shortlink_domains\""));
        assert!(
            refusal("shortlink_domains { a.b active;")
                .1
                .contains("not closed")
        );
        let twice = "shortlink_domains { a.b active; } shortlink_domains { a.b active; }";
        assert!(refusal(twice).1.contains("twice"));
        assert!(
            within("a.b active;\ncertificate /*;")
                .1
                .contains("certificate_key")
        );
    }

    #[test]
    fn files_that_the_block_includes_are_read_in_their_place() {
        let directory = tempfile::tempdir().expect("a directory");
        let write = |name: &str, text: &str| {
            std::fs::write(directory.path().join(name), text).expect("a file");
        };
        let read = |text: &str| read(Path::new("t"), text, directory.path());
        write("b.list", "b.example active;\n");
        write("a.list", "a.example serving;\ninclude c.conf;\n");
        write(".c.list", "hidden.example on;\n");
        write("c.conf", "c.example serving;\n");
        let domains = read("shortlink_domains { first.example serving; include *.li?t; }");
        let names = domains.expect("a table").names().to_owned();
        assert_eq!(names, "first.example,a.example,c.example,b.example");
        assert!(read("shortlink_domains { a.example active; include none*; }").is_ok());

        write("c.conf", "\nc.example on;\n");
        let refused = read("shortlink_domains { include *.list; }").expect_err("a wrong line");
        assert!(refused.contains("c.conf:2: "), "{refused}");
        write("c.conf", "include a.list;\n");
        let refused = read("shortlink_domains { include c.conf; }").expect_err("a circle");
        assert!(refused.contains("twice"), "{refused}");
        write("c.conf", "include c.conf;\n");
        let refused = read("shortlink_domains { include c.conf; }").expect_err("a circle");
        assert!(refused.contains("include each other"), "{refused}");
        let refused = read("shortlink_domains { include none; }").expect_err("no file");
        assert!(refused.contains("t:1: ") && refused.contains("none can't be read"));
    }
}
