//! Storage of the audit log.

/// The filter of a listing of the audit log. `None` matches every entry.
#[derive(Clone, Debug, Default)]
pub struct AuditListing {
    /// Only entries about this subject.
    pub subject: Option<String>,
    /// Only entries of changes with this API key.
    pub key_id: Option<String>,
    /// Only entries of this action.
    pub action: Option<String>,
    /// Only entries with a lesser number.
    pub before: Option<i64>,
    /// The most entries to answer with.
    pub limit: u32,
}
