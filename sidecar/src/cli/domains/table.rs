//! Reading `shortlink_domains` out of a file of nginx' configuration, as nginx does.

use vocabulary::domains::Domains;

use super::super::nginx_conf::{End, Refusal, Token, Tokens};

/// The directive whose block is read.
const DIRECTIVE: &[u8] = b"shortlink_domains";

/// Reads the table.
pub(super) fn read(text: &str) -> Result<Domains, Refusal> {
    let mut tokens = Tokens::new(text);
    let mut found: Option<Domains> = None;
    // The enclosing blocks, and for each whether it is the one in question.
    let mut blocks = Vec::new();
    while let Some((words, end)) = next(&mut tokens)? {
        let line = tokens.line;
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
    if !blocks.is_empty() {
        return Err(tokens.refuse("a block is not closed: \"}\" is missing"));
    }
    found.ok_or_else(|| tokens.refuse("there is no \"shortlink_domains\" block in the file"))
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
