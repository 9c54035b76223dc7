//! Reading `shortlink_domains` out of a file of nginx' configuration, as nginx does.

use vocabulary::domains::Domains;

/// The directive whose block is read.
const DIRECTIVE: &[u8] = b"shortlink_domains";

/// The reason for which nginx would refuse a file, and its line.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Refusal {
    pub(super) line: usize,
    pub(super) reason: String,
}

/// Reads the table.
pub(super) fn read(text: &str) -> Result<Domains, Refusal> {
    let mut directives = Directives {
        bytes: text.as_bytes(),
        place: 0,
        line: 1,
    };
    let mut found: Option<Domains> = None;
    // The enclosing blocks, and for each whether it is the one in question.
    let mut blocks = Vec::new();
    while let Some((words, end)) = directives.next()? {
        let line = directives.line;
        let refused = |reason: String| Refusal { line, reason };
        let is_within = blocks.last() == Some(&true);
        let lines: Vec<&[u8]> = words.iter().map(|word| &word[..]).collect();
        match end {
            End::Semicolon if is_within => {
                let domains = found.get_or_insert_default();
                let to_ascii = |name: &str| idna::domain_to_ascii(name).ok();
                let added = domains.add(&lines, to_ascii);
                added.map_err(|it| refused(it.to_string()))?;
            }
            End::Semicolon => {}
            End::Open => {
                let is_it = lines == [DIRECTIVE];
                if is_it && found.is_some() {
                    return Err(refused("\"shortlink_domains\" is given twice".to_owned()));
                }
                if is_it {
                    found = Some(Domains::default());
                }
                blocks.push(is_it);
            }
            End::Close => match (blocks.pop(), &found) {
                (None, _) => return Err(refused("unexpected \"}\"".to_owned())),
                (Some(true), Some(domains)) => {
                    let whole = domains.finish().and_then(|()| domains.certificates());
                    whole.map_err(|it| refused(it.to_string()))?;
                }
                _ => {}
            },
        }
    }
    let line = directives.line;
    let refused = |reason: &str| Refusal {
        line,
        reason: reason.to_owned(),
    };
    if !blocks.is_empty() {
        return Err(refused("a block is not closed: \"}\" is missing"));
    }
    found.ok_or_else(|| refused("there is no \"shortlink_domains\" block in the file"))
}

/// The end of a directive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Semicolon,
    Open,
    Close,
}

/// The words of a directive, and its end.
type Directive = (Vec<Vec<u8>>, End);

/// The directives of a file, one after another.
struct Directives<'a> {
    bytes: &'a [u8],
    place: usize,
    /// The line of the last byte that was read.
    line: usize,
}

impl Directives<'_> {
    /// The next directive; `None` at the end of the file.
    fn next(&mut self) -> Result<Option<Directive>, Refusal> {
        let mut words = Vec::new();
        loop {
            self.skip_blank();
            let Some(&byte) = self.bytes.get(self.place) else {
                if words.is_empty() {
                    return Ok(None);
                }
                return Err(self.refuse("unexpected end of the file: \";\" or \"}\" is missing"));
            };
            let end = match byte {
                b';' => End::Semicolon,
                b'{' => End::Open,
                b'}' => End::Close,
                b'"' | b'\'' => {
                    words.push(self.quoted(byte)?);
                    continue;
                }
                _ => {
                    words.push(self.word());
                    continue;
                }
            };
            if (end == End::Close) != words.is_empty() {
                return Err(self.refuse(&format!("unexpected \"{}\"", char::from(byte))));
            }
            self.place += 1;
            return Ok(Some((words, end)));
        }
    }

    fn skip_blank(&mut self) {
        let mut is_comment = false;
        while let Some(&byte) = self.bytes.get(self.place) {
            match byte {
                b'\n' => {
                    self.line += 1;
                    is_comment = false;
                }
                b'#' => is_comment = true,
                _ if is_comment || byte.is_ascii_whitespace() => {}
                _ => return,
            }
            self.place += 1;
        }
    }

    /// A word without quotes, up to a blank or the end of the directive.
    fn word(&mut self) -> Vec<u8> {
        let mut word = Vec::new();
        while let Some(&byte) = self.bytes.get(self.place) {
            if byte.is_ascii_whitespace() || matches!(byte, b';' | b'{' | b'}') {
                break;
            }
            self.take(byte, &mut word);
        }
        word
    }

    /// A word in quotes.
    fn quoted(&mut self, quote: u8) -> Result<Vec<u8>, Refusal> {
        let mut word = Vec::new();
        self.place += 1;
        while let Some(&byte) = self.bytes.get(self.place) {
            if byte == quote {
                self.place += 1;
                return Ok(word);
            }
            self.take(byte, &mut word);
        }
        Err(self.refuse("a quote is not closed"))
    }

    /// Appends a byte of a word. After a backslash it has no special meaning; the backslash itself
    /// is dropped only before the characters that nginx escapes.
    fn take(&mut self, byte: u8, word: &mut Vec<u8>) {
        let escaped = self.bytes.get(self.place + 1).filter(|_| byte == b'\\');
        let escaped = escaped.copied();
        if !matches!(escaped, Some(b'"' | b'\'' | b'\\')) {
            word.push(byte);
        }
        if let Some(next) = escaped {
            word.push(next);
            self.place += 1;
        }
        if escaped.unwrap_or(byte) == b'\n' {
            self.line += 1;
        }
        self.place += 1;
    }

    fn refuse(&self, reason: &str) -> Refusal {
        Refusal {
            line: self.line,
            reason: reason.to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use vocabulary::domains::Retirement;

    use super::*;

    fn refusal(text: &str) -> (usize, String) {
        let refusal = read(text).expect_err(text);
        (refusal.line, refusal.reason)
    }

    #[test]
    fn the_block_is_found_among_others() {
        let text = "# a comment; {\nupstream a {\n server 127.0.0.1:1;\n}\nshortlink_domains {\n\
                    \"a.example\" active scheme=http;# c\n  'b.example'\n serving ;\nlänk.example \
                    retired 'target=https://x.example/?a\\';b'; }\nserver { location / { } }\n";
        let domains = read(text).expect("a table");
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
        assert!(refusal("server { }").1.contains("no \"shortlink_domains\""));
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
}
