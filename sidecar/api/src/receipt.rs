//! A delivery receipt.

use schemars::SchemaGenerator;
use serde_json::Value;
use shortlink_core::receipt::{MAX_NETWORK_CHARACTERS, ReceiptStatus};

use super::faults::Faults;
use super::kinds::link::{CampaignId, Code, ExternalId};
use super::kinds::{Kind, Moment, Shape, ShortText, expect, text};
use super::members::request;
use super::members::{Required, members};
use super::schema::of;
use super::words;

/// The status of a message.
pub enum Status {}

impl Kind for Status {
    type Value = ReceiptStatus;
    const SHAPE: Shape = Shape::Text;

    fn check(value: Value, faults: &mut Faults<'_>) -> Option<ReceiptStatus> {
        let name = text(value, faults)?;
        let must = format_args!("one of {}", ReceiptStatus::NAMES);
        expect(ReceiptStatus::by_name(&name), faults, must)
    }

    fn schema(generator: &mut SchemaGenerator) -> Value {
        of::<words::ReceiptStatus>(generator)
    }
}

members! {
    /// The members of a receipt.
    pub struct Receipt {
        /// Code of the message's link.
        short_code: Required<Code> = "shortCode",
        /// Your id of the link, instead of `shortCode`. Of several links of the campaign with this id, the latest.
        external_id: Required<ExternalId> = "externalId",
        /// Campaign of the link, with `externalId`.
        campaign_id: Required<CampaignId> = "campaignId",
        /// Status of the message.
        status: Required<Status> = "status",
        /// Carrier, as your provider names it.
        network: Required<ShortText<MAX_NETWORK_CHARACTERS>> = "network",
        /// Time of the status, at most a minute in the future. Default: now; without a time, a status replaces only one
        /// that comes before it in the list above.
        at: Required<Moment> = "at",
    }
}

request! {
    /// A delivery receipt, with `shortCode`, or with `externalId` and `campaignId`.
    pub NewReceipt: New, required ["status"], of Receipt
}
