//! Targets with places for parameters.

use vocabulary::Code;
use vocabulary::parameters::{MAX_PARAMETERS, Parameters};
use vocabulary::template::{ExpandError, Place, Template};

use crate::link::ParameterValues;
use crate::target::{OwnHosts, Target, TargetError, TargetPolicy};

/// The name that stands for a link's code in a template.
const CODE: &str = "code";

/// The longest name of a parameter.
const LONGEST_NAME: usize = 32;

/// A target with places for parameters.
#[derive(Clone, PartialEq, Eq)]
pub struct CampaignTarget {
    /// The template of the record, with numbers for names.
    template: String,
    /// The names of the parameters, in the order of links' values.
    names: Vec<String>,
}

impl CampaignTarget {
    /// Reads a target with names in braces. `declared` names come first, in their order, whether
    /// they occur or not.
    ///
    /// # Errors
    /// Fails if a name is invalid or misplaced, or the rest is an invalid target.
    pub fn parse(
        text: &str,
        declared: &[String],
        policy: TargetPolicy,
        own: &OwnHosts,
    ) -> Result<Self, CampaignTargetError> {
        let mut names: Vec<String> = Vec::new();
        for name in declared {
            add_name(&mut names, name)?;
        }
        // While the URL is read each place is a word that a URL parser leaves as it is.
        let word = unused_word(text);
        let mut url = String::with_capacity(text.len());
        let mut places = Vec::new();
        let mut rest = text;
        while let Some((before, after)) = rest.split_once('{') {
            let (name, behind) = after.split_once('}').ok_or(CampaignTargetError::Brace)?;
            if before.contains('}') {
                return Err(CampaignTargetError::Brace);
            }
            let place = if name == CODE {
                CODE.to_owned()
            } else {
                add_name(&mut names, name)?.to_string()
            };
            url.push_str(before);
            url.push_str(&format!("{word}{}z", places.len()));
            places.push(place);
            rest = behind;
        }
        if rest.contains('}') {
            return Err(CampaignTargetError::Brace);
        }
        url.push_str(rest);
        let target = Target::parse(&url, policy, own)?;
        let mut template = target.as_str().to_owned();
        // Backwards, so that the word of place 1 is not taken for the beginning of that of 10.
        for (number, place) in places.iter().enumerate().rev() {
            let word = format!("{word}{number}z");
            if template.matches(&word).count() != 1 {
                return Err(CampaignTargetError::Authority);
            }
            template = template.replace(&word, &format!("{{{place}}}"));
        }
        Template::parse(template.as_bytes()).map_err(|_error| CampaignTargetError::Authority)?;
        Ok(Self { template, names })
    }

    /// Restores a target from [`CampaignTarget::template`] and [`CampaignTarget::names`].
    pub fn from_stored(template: String, names: Vec<String>) -> Self {
        Self { template, names }
    }

    /// The template of the record.
    pub fn template(&self) -> &str {
        &self.template
    }

    /// The names of the parameters, in the order of links' values.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// The target with names in braces, as it was written.
    pub fn with_names(&self) -> String {
        self.named(&self.template)
    }

    /// Another template with the names of this one in braces.
    pub fn named(&self, template: &str) -> String {
        let mut text = template.to_owned();
        for place in Template::from_checked(template.as_bytes()).places() {
            if let Place::Parameter(number) = place
                && let Some(name) = self.names.get(number)
            {
                text = text.replace(&format!("{{{number}}}"), &format!("{{{name}}}"));
            }
        }
        text
    }

    /// Fills in a link's parameters.
    ///
    /// # Errors
    /// Fails if the link lacks a parameter, or its target would not be served.
    pub fn expand(&self, code: &Code, values: &ParameterValues) -> Result<Target, ExpandError> {
        let mut target = Vec::new();
        let values = Parameters::from_checked(values.as_str().as_bytes());
        Template::from_checked(self.template.as_bytes()).expand(code, values, &mut target)?;
        // It was made of texts and is ASCII.
        String::from_utf8(target)
            .map(Target::from_stored)
            .map_err(|_error| ExpandError::Target)
    }
}

impl std::fmt::Debug for CampaignTarget {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "CampaignTarget({} bytes)", self.template.len())
    }
}

/// Adds a name unless it is there; returns its place.
fn add_name(names: &mut Vec<String>, name: &str) -> Result<usize, CampaignTargetError> {
    if let Some(place) = names.iter().position(|known| known == name) {
        return Ok(place);
    }
    let mut characters = name.chars();
    let is_name = characters
        .next()
        .is_some_and(|first| first.is_ascii_alphabetic())
        && characters.all(|character| character.is_ascii_alphanumeric() || character == '_')
        && name.len() <= LONGEST_NAME
        && name != CODE;
    if !is_name {
        return Err(CampaignTargetError::Name {
            name: name.chars().take(LONGEST_NAME).collect(),
        });
    }
    if names.len() == MAX_PARAMETERS {
        return Err(CampaignTargetError::TooMany);
    }
    names.push(name.to_owned());
    Ok(names.len() - 1)
}

/// A word of lower case letters that does not occur in a text.
fn unused_word(text: &str) -> String {
    let mut word = String::from("qz");
    while text.contains(&word) {
        word.push('q');
        word.push('z');
    }
    word
}

/// Reason for the refusal of a target with places, worded for the caller.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CampaignTargetError {
    /// A brace belongs to no place.
    #[error("has a brace that belongs to no parameter; write %7B and %7D for literal braces")]
    Brace,
    /// A name of a parameter is none.
    #[error(
        "{name:?} can't be the name of a parameter: a letter and up to 31 letters, digits and _, \
         but not \"code\""
    )]
    Name {
        /// The name.
        name: String,
    },
    /// There are too many parameters.
    #[error("has more than {MAX_PARAMETERS} parameters")]
    TooMany,
    /// A placeholder is before the path.
    #[error("must have its parameters after the host")]
    Authority,
    /// The rest is no good target.
    #[error(transparent)]
    Target(#[from] TargetError),
}
