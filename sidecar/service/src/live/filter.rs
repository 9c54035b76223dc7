//! Filter of a listener.

use shortlink_core::visit::class::Class;
use vocabulary::Code;
use vocabulary::visit::VisitEvent;

/// Matches visits that meet all conditions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LiveFilter {
    /// Matches visits of this link.
    pub code: Option<Code>,
    /// Matches visits of this short domain.
    pub host: Option<String>,
    /// Matches visits of this class.
    pub class: Option<Class>,
}

impl LiveFilter {
    /// Returns false when an event cannot match, before it is converted to a visit: checks all
    /// conditions but the class.
    pub(super) fn may_want(&self, event: &VisitEvent<'_>) -> bool {
        let is_code = self.code.is_none_or(|code| code.as_bytes() == event.code);
        let is_host = self
            .host
            .as_ref()
            .is_none_or(|host| host.as_bytes().eq_ignore_ascii_case(event.host));
        is_code && is_host
    }
}
