//! Delivery receipts: reports of carriers about the message with a link.

use jiff::{SignedDuration, Timestamp};
use vocabulary::{CampaignId, Code};

use crate::named;

/// The most characters of the name of a network.
pub const MAX_NETWORK_CHARACTERS: usize = 128;

/// The longest time by which a receipt may be ahead of this process' clock: clocks of two companies differ by seconds.
pub const MAX_AHEAD: SignedDuration = SignedDuration::from_secs(60);

named! {
    /// State of a message. Of two that are reported for the same time, the later in this list counts.
    #[derive(PartialOrd, Ord)]
    pub enum ReceiptStatus: "status of a receipt" {
        /// The carrier has taken the message.
        Sent = "sent",
        /// The carrier refused the message.
        Rejected = "rejected",
        /// The carrier gave up after the time of the message.
        Expired = "expired",
        /// The message could not be delivered.
        Failed = "failed",
        /// The recipient's phone has the message.
        Delivered = "delivered",
    }
}

/// The link of a message.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ReceiptOf {
    /// The link with a code.
    Code(Code),
    /// The latest link of a campaign with an id of the caller's.
    Recipient(CampaignId, String),
}

/// A delivery receipt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeliveryReceipt {
    /// The link of the message.
    pub of: ReceiptOf,
    /// The time of the status.
    pub at: Timestamp,
    /// The caller gave the time; otherwise it is that of the request, which a repetition would make later.
    pub is_timed: bool,
    /// The status of the message.
    pub status: ReceiptStatus,
    /// The carrier, as the caller names it; empty if unknown.
    pub network: String,
}

/// The outcome of a receipt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReceiptOutcome {
    /// The status of the message is this one now.
    Stored,
    /// The status of the message is from a later time, or the same already.
    Unchanged,
    /// The caller reaches no such link.
    Unknown,
}

/// The number of messages of a campaign with a common network and status.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReceiptCount {
    /// The carrier; empty if unknown.
    pub network: String,
    /// The last status.
    pub status: ReceiptStatus,
    /// The number of messages.
    pub messages: u64,
    /// The number of those whose links have clicks, or had some when they were deleted; `None` if too many links of the
    /// campaign have.
    pub clicked: Option<u64>,
}
