//! The parameter of targets with the id of a click.

use vocabulary::parameters::Parameters;
use vocabulary::target::with_click_id_parameter;
use vocabulary::{Code, ExpandError, Template, TemplateError};

use super::CampaignTarget;
use crate::link::ParameterValues;

/// The longest name.
const LONGEST_NAME: usize = 32;

/// A text that is no name of a parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("must have 1 to {LONGEST_NAME} ASCII letters, digits, -, . or _")]
pub struct ClickParameterError;

/// The parameter that a campaign's target gets for the ids of clicks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClickParameter {
    name: String,
    /// The template of the record: that of the campaign with a place for the id.
    template: String,
}

impl ClickParameter {
    /// Checks a name.
    ///
    /// # Errors
    /// Fails if a query cannot have it unchanged.
    pub fn check_name(name: &str) -> Result<(), ClickParameterError> {
        let is_fine = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
        if (1..=LONGEST_NAME).contains(&name.len()) && name.bytes().all(is_fine) {
            Ok(())
        } else {
            Err(ClickParameterError)
        }
    }

    /// Adds it to the target of a campaign.
    pub fn new(name: String, target: &CampaignTarget) -> Self {
        let template = with_click_id_parameter(target.template().as_bytes(), name.as_bytes());
        Self {
            name,
            template: String::from_utf8_lossy(&template).into_owned(),
        }
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The template of the record.
    pub fn template(&self) -> &str {
        &self.template
    }

    /// Checks that the target can have it.
    ///
    /// # Errors
    /// Fails if no target could be served.
    pub fn check_fit(&self) -> Result<(), TemplateError> {
        Template::parse_with_click_id(self.template.as_bytes()).map(drop)
    }

    /// Checks that the target of a link can have an id.
    pub(super) fn check(&self, code: &Code, values: &ParameterValues) -> Result<(), ExpandError> {
        let values = Parameters::from_checked(values.as_str().as_bytes());
        let template = Template::from_checked(self.template.as_bytes());
        template.expand_with_click_id(code, values, &mut Vec::new())
    }
}
