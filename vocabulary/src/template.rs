//! Templates: the target of a campaign, with places for what differs from link to link.
//!
//! ```text
//! https://shop.example.com/p?m={0}&c={code}
//! ```
//!
//! `{0}` to `{15}` stand for the parameters of a link by their place, `{code}` for its code. There
//! is no other use of a brace, and no way to write one: a serialised URL has none in its path, and
//! in its query and fragment it can be written as an escape. Places stand behind the authority
//! only, so that no parameter can change the host that a visitor is sent to.

use alloc::vec::Vec;
use core::fmt;

use crate::code::Code;
use crate::number::parse_decimal;
use crate::parameters::{MAX_PARAMETERS, Parameters};
use crate::target::{MAX_TARGET_LENGTH, is_servable, is_servable_with_click_id};

/// Meaning of a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// The parameter at this place, from 0.
    Parameter(usize),
    /// The link's code.
    Code,
}

impl Place {
    /// Reads what stands between braces.
    fn parse(name: &[u8]) -> Option<Self> {
        if name == b"code" {
            return Some(Self::Code);
        }
        let place = usize::try_from(parse_decimal(name)?).ok()?;
        (place < MAX_PARAMETERS).then_some(Self::Parameter(place))
    }
}

/// The target of a campaign.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Template<'a>(&'a [u8]);

impl<'a> Template<'a> {
    /// Reads a template.
    ///
    /// # Errors
    /// Fails if it could not be served even without its places, has a place before the end of the
    /// authority, or a brace that belongs to no place.
    pub fn parse(text: &'a [u8]) -> Result<Self, TemplateError> {
        Self::parse_if(is_servable(text), text)
    }

    /// Reads a template of targets that get the ids of clicks.
    ///
    /// # Errors
    /// As [`Template::parse`]; also without a place for the id.
    pub fn parse_with_click_id(text: &'a [u8]) -> Result<Self, TemplateError> {
        Self::parse_if(is_servable_with_click_id(text), text)
    }

    fn parse_if(is_servable: bool, text: &'a [u8]) -> Result<Self, TemplateError> {
        if !is_servable {
            return Err(TemplateError::Target);
        }
        let template = Self(text);
        let free = template.free_from();
        let mut at = 0;
        for piece in template.pieces() {
            let piece = piece.ok_or(TemplateError::Brace)?;
            at += piece.text.len();
            if piece.text.contains(&b'}') {
                return Err(TemplateError::Brace);
            }
            if piece.place.is_some() && at <= free {
                return Err(TemplateError::Authority);
            }
            at += piece.place_length;
        }
        Ok(template)
    }

    /// Takes a text that [`Template::parse`] has accepted before.
    #[inline]
    pub fn from_checked(text: &'a [u8]) -> Self {
        Self(text)
    }

    /// The template as it is written.
    #[inline]
    pub fn as_bytes(self) -> &'a [u8] {
        self.0
    }

    /// The places, in the order in which they stand.
    pub fn places(self) -> impl Iterator<Item = Place> + 'a {
        self.pieces().filter_map(|piece| piece?.place)
    }

    /// Returns the least number of parameters that a link must have.
    pub fn least_parameters(self) -> usize {
        let least = self.places().map(|place| match place {
            Place::Parameter(place) => place + 1,
            Place::Code => 0,
        });
        least.max().unwrap_or(0)
    }

    /// Replaces the content of `out` by the target of a link.
    ///
    /// # Errors
    /// Fails if the template names a parameter that the link lacks, or the target may not be
    /// served; the content of `out` is then undefined.
    pub fn expand(
        self,
        code: &Code,
        parameters: Parameters<'_>,
        out: &mut Vec<u8>,
    ) -> Result<(), ExpandError> {
        self.expand_if(is_servable, code, parameters, out)
    }

    /// As [`Template::expand`] for a target that gets the id of a click.
    ///
    /// # Errors
    /// As [`Template::expand`].
    pub fn expand_with_click_id(
        self,
        code: &Code,
        parameters: Parameters<'_>,
        out: &mut Vec<u8>,
    ) -> Result<(), ExpandError> {
        self.expand_if(is_servable_with_click_id, code, parameters, out)
    }

    #[inline]
    fn expand_if(
        self,
        is_servable: impl FnOnce(&[u8]) -> bool,
        code: &Code,
        parameters: Parameters<'_>,
        out: &mut Vec<u8>,
    ) -> Result<(), ExpandError> {
        out.clear();
        for piece in self.pieces() {
            let piece = piece.ok_or(ExpandError::Target)?;
            out.extend_from_slice(piece.text);
            match piece.place {
                None => {}
                Some(Place::Code) => out.extend_from_slice(code.as_bytes()),
                Some(Place::Parameter(place)) => {
                    let value = parameters.get(place);
                    out.extend_from_slice(value.ok_or(ExpandError::Missing(place))?);
                }
            }
            // The copy ends as soon as the target is too long.
            if out.len() > MAX_TARGET_LENGTH {
                return Err(ExpandError::Target);
            }
        }
        if is_servable(out) {
            Ok(())
        } else {
            Err(ExpandError::Target)
        }
    }

    /// Returns the end of the authority: the first character behind `scheme://` that is none of it.
    fn free_from(self) -> usize {
        let begin = if self.0.starts_with(b"https://") {
            8
        } else {
            7
        };
        let authority = self.0.get(begin..).unwrap_or_default();
        let end = authority
            .iter()
            .position(|byte| matches!(byte, b'/' | b'?' | b'#'));
        begin + end.unwrap_or(authority.len())
    }

    #[inline]
    fn pieces(self) -> Pieces<'a> {
        Pieces { rest: self.0 }
    }
}

/// Some text, and the place behind it.
struct Piece<'a> {
    text: &'a [u8],
    /// `None` at the end of the template.
    place: Option<Place>,
    place_length: usize,
}

/// The pieces of a template; one that can't be read is `None`, and the last.
struct Pieces<'a> {
    rest: &'a [u8],
}

impl<'a> Iterator for Pieces<'a> {
    type Item = Option<Piece<'a>>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let rest = core::mem::take(&mut self.rest);
        let Some(open) = rest.iter().position(|&byte| byte == b'{') else {
            return Some(Some(Piece {
                text: rest,
                place: None,
                place_length: 0,
            }));
        };
        let behind = &rest[open + 1..];
        // No name is longer than `code`.
        let window = &behind[..behind.len().min(5)];
        let Some(close) = window.iter().position(|&byte| byte == b'}') else {
            return Some(None);
        };
        let Some(place) = Place::parse(&behind[..close]) else {
            return Some(None);
        };
        self.rest = &behind[close + 1..];
        Some(Some(Piece {
            text: &rest[..open],
            place: Some(place),
            place_length: close + 2,
        }))
    }
}

/// Reason for which a text is not a template.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TemplateError {
    /// It is not a target that could be served ([`is_servable`]).
    Target,
    /// A place stands before the end of the authority.
    Authority,
    /// A brace belongs to no place.
    Brace,
}

impl fmt::Display for TemplateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Target => "the template is not an http or https URL that can be served",
            Self::Authority => "a template has placeholders only after the host",
            Self::Brace => {
                "a template's braces are those of the placeholders {0} to {15} and {code}"
            }
        })
    }
}

impl core::error::Error for TemplateError {}

/// Reason for which a link's target can't be built.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExpandError {
    /// The template names this parameter, and the link has it not.
    Missing(usize),
    /// The target may not be served: mostly because it is too long.
    Target,
}

impl fmt::Display for ExpandError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing(place) => write!(f, "the template names parameter {place}"),
            Self::Target => write!(
                f,
                "the target would not be a URL that can be served, or would have more than \
                 {MAX_TARGET_LENGTH} bytes"
            ),
        }
    }
}

impl core::error::Error for ExpandError {}

#[cfg(test)]
mod tests {
    use super::*;

    fn expand(template: &str, parameters: &str) -> Result<String, ExpandError> {
        let template = Template::parse(template.as_bytes()).expect("a template");
        let parameters = Parameters::parse(parameters.as_bytes()).expect("parameters");
        let code: Code = "Ab3".parse().expect("a code");
        let mut out = b"what was there".to_vec();
        template.expand(&code, parameters, &mut out)?;
        Ok(String::from_utf8(out).expect("ASCII"))
    }

    #[test]
    fn places_are_filled() {
        for (template, parameters, target) in [
            ("https://e.com/", "", "https://e.com/"),
            ("https://e.com", "a", "https://e.com"),
            (
                "http://e.com/p?m={0}&c={code}",
                "%C3%BC",
                "http://e.com/p?m=%C3%BC&c=Ab3",
            ),
            (
                "https://e.com/{1}{0}{1}#{code}",
                "a&b",
                "https://e.com/bab#Ab3",
            ),
            ("https://e.com?{0}", "a", "https://e.com?a"),
            ("https://e.com#{0}", "a&", "https://e.com#a"),
            ("https://e.com/{1}x", "a&", "https://e.com/x"),
            (
                "https://e.com/{15}",
                "0&1&2&3&4&5&6&7&8&9&a&b&c&d&e&f",
                "https://e.com/f",
            ),
        ] {
            assert_eq!(expand(template, parameters).as_deref(), Ok(target));
        }
    }

    #[test]
    fn a_link_needs_what_its_template_names() {
        assert_eq!(
            expand("https://e.com/{0}", ""),
            Err(ExpandError::Missing(0))
        );
        assert_eq!(
            expand("https://e.com/{2}", "a&b"),
            Err(ExpandError::Missing(2))
        );
        let template = Template::parse(b"https://e.com/{3}{code}{1}").expect("a template");
        assert_eq!(template.least_parameters(), 4);
        let places: Vec<Place> = template.places().collect();
        assert_eq!(
            places,
            [Place::Parameter(3), Place::Code, Place::Parameter(1)]
        );
    }

    #[test]
    fn a_target_that_grows_too_long_is_refused() {
        let places = "{0}".repeat(8);
        let fits = format!("https://e/{places}");
        let value = "a".repeat(1022);
        assert_eq!(
            expand(&fits, &value).map(|target| target.len()),
            Ok(8 * 1022 + 10)
        );
        let value = "a".repeat(1023);
        assert_eq!(expand(&fits, &value), Err(ExpandError::Target));
    }

    #[test]
    fn what_is_no_template_is_refused() {
        for (text, error) in [
            ("https://{0}/", TemplateError::Authority),
            ("https://e.com{0}/", TemplateError::Authority),
            ("https://{code}.e.com/", TemplateError::Authority),
            ("https://e.com{0}", TemplateError::Authority),
            ("https://e.com\\{0}/", TemplateError::Authority),
            ("https://e.com:{0}", TemplateError::Authority),
            ("https://{0}@e.com/", TemplateError::Authority),
            ("https://e.com/{", TemplateError::Brace),
            ("https://e.com/}", TemplateError::Brace),
            ("https://e.com/{}", TemplateError::Brace),
            ("https://e.com/{00}", TemplateError::Brace),
            ("https://e.com/{01}", TemplateError::Brace),
            ("https://e.com/{16}", TemplateError::Brace),
            ("https://e.com/{-1}", TemplateError::Brace),
            ("https://e.com/{Code}", TemplateError::Brace),
            ("https://e.com/{codes}", TemplateError::Brace),
            ("https://e.com/{{0}}", TemplateError::Brace),
            ("https://e.com/{0}}", TemplateError::Brace),
            ("https://e}.com/{0}", TemplateError::Brace),
            ("javascript:alert({0})", TemplateError::Target),
            ("//e.com/{0}", TemplateError::Target),
            ("https:///{0}", TemplateError::Target),
            ("https://e.com/ {0}", TemplateError::Target),
            ("https://e.com/\r\n{0}", TemplateError::Target),
            ("", TemplateError::Target),
        ] {
            assert_eq!(Template::parse(text.as_bytes()), Err(error), "{text}");
        }
    }
}
