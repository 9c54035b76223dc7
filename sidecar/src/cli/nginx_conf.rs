//! The words of nginx' configuration, as nginx reads them.

/// The reason for which nginx would refuse a file, and its line.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Refusal {
    pub(super) line: usize,
    pub(super) reason: String,
}

/// The end of a directive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    Semicolon,
    /// It begins a block.
    Open,
    /// The end of a block, which has no words.
    Close,
}

/// A word of a directive, or its end.
pub(super) enum Token {
    Word(Vec<u8>),
    End(End),
}

/// The tokens of a file, one after another.
pub(super) struct Tokens<'a> {
    bytes: &'a [u8],
    place: usize,
    /// The line of the last byte that was read.
    pub(super) line: usize,
}

impl<'a> Tokens<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        Self {
            bytes: text.as_bytes(),
            place: 0,
            line: 1,
        }
    }

    /// The next token; `None` at the end of the file.
    pub(super) fn next(&mut self) -> Result<Option<Token>, Refusal> {
        self.skip_blank();
        let Some(&byte) = self.bytes.get(self.place) else {
            return Ok(None);
        };
        let end = match byte {
            b';' => End::Semicolon,
            b'{' => End::Open,
            b'}' => End::Close,
            b'"' | b'\'' => return Ok(Some(Token::Word(self.quoted(byte)?))),
            _ => return Ok(Some(Token::Word(self.word()))),
        };
        self.place += 1;
        Ok(Some(Token::End(end)))
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
            // A variable in braces is no block.
            let begins_block = byte == b'{' && !word.ends_with(b"$");
            if byte.is_ascii_whitespace() || byte == b';' || begins_block {
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

    pub(super) fn refuse(&self, reason: &str) -> Refusal {
        Refusal {
            line: self.line,
            reason: reason.to_owned(),
        }
    }
}
