//! `shortlink links explain`

use serde_json::Value;

use super::show::block;

/// The explanation of an answer as text.
pub(super) fn describe(explanation: &Value) -> String {
    block(
        explanation,
        &[
            ("code", "/shortCode"),
            ("answer", "/answer/status"),
            ("because of", "/answer/rule"),
            ("by", "/answer/source"),
            ("leads to", "/answer/location"),
            ("SQL: state", "/database/state"),
            ("SQL: revision", "/database/revision"),
            ("SQL: record", "/database/record"),
            ("Redis waits", "/database/waits"),
            ("Redis holds", "/redis/holds"),
            ("Redis: record", "/redis/record"),
            ("agreement", "/agreement"),
            ("campaign", "/campaign/campaignId"),
            ("its name", "/campaign/name"),
            ("its state", "/campaign/state"),
            ("its record agrees", "/campaign/agrees"),
            ("checked", "/checkedAt"),
        ],
    )
}
