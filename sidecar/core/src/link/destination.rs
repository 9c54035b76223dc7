//! Destinations of links.

use std::borrow::Cow;

use vocabulary::CampaignId;

use super::ParameterValues;
use crate::target::Target;

/// Destination of a link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Destination {
    /// A target of its own.
    Target(Target),
    /// The target of its campaign, which also has the redirect status.
    Campaign {
        /// The campaign, which the link never leaves.
        id: CampaignId,
        /// Parameters of the campaign's target.
        values: ParameterValues,
    },
}

impl Destination {
    /// The link's own target.
    pub fn target(&self) -> Option<&Target> {
        match self {
            Self::Target(target) => Some(target),
            Self::Campaign { .. } => None,
        }
    }

    /// The campaign that the link belongs to.
    pub fn campaign(&self) -> Option<CampaignId> {
        match self {
            Self::Target(_) => None,
            Self::Campaign { id, .. } => Some(*id),
        }
    }

    /// Returns the parameters of its campaign's target.
    pub fn values(&self) -> Option<&ParameterValues> {
        match self {
            Self::Target(_) => None,
            Self::Campaign { values, .. } => Some(values),
        }
    }

    /// Returns a text that is unique to the destination: no URL begins with a number sign.
    pub fn text(&self) -> Cow<'_, str> {
        match self {
            Self::Target(target) => Cow::Borrowed(target.as_str()),
            Self::Campaign { id, values } => Cow::Owned(format!("#{id}&{}", values.as_str())),
        }
    }
}
