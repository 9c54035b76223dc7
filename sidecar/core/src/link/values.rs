//! The parameters of a campaign's links.

use url::form_urlencoded;
use vocabulary::parameters::encode_parameters;

/// The values of a link's parameters, encoded and in the order of the campaign's names.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct ParameterValues(String);

impl ParameterValues {
    /// Encodes values.
    ///
    /// # Errors
    /// Fails if one can't be put into a URL, or they are too long; the error names the place of the
    /// value where there is one.
    pub fn encode(values: &[&str]) -> Result<Self, vocabulary::parameters::ParametersError> {
        let mut text = Vec::new();
        encode_parameters(values, &mut text)?;
        // Only unreserved characters, escapes and `&`.
        Ok(Self(String::from_utf8(text).unwrap_or_default()))
    }

    /// Restores values from [`ParameterValues::as_str`].
    pub fn from_stored(text: String) -> Self {
        Self(text)
    }

    /// The values of the link's record.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The values as they were before they were encoded.
    pub fn decoded(&self) -> Vec<String> {
        if self.0.is_empty() {
            return Vec::new();
        }
        // `+`, `=` and `&`, which are special in a form, are encoded in a value.
        let values = self.0.split('&');
        values
            .map(|value| {
                let decoded = form_urlencoded::parse(value.as_bytes()).next();
                decoded.map_or_else(String::new, |(text, _)| text.into_owned())
            })
            .collect()
    }
}

impl std::fmt::Debug for ParameterValues {
    /// Shows no more than the length: parameters are recipients' data.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ParameterValues({} bytes)", self.0.len())
    }
}
