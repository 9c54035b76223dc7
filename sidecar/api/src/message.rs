//! A message, whose URLs become short links.

use super::kinds::link::MessageText;
use super::link::{LinkIssue, LinkSettings, LinkTarget};
use super::members::request;
use super::members::{Required, members};
use super::rules::PlanMembers;

members! {
    /// The text of a message.
    pub struct Message {
        /// Text of the message. Each http or https URL in it is replaced by a short link, except for punctuation,
        /// quotes and brackets around it; `{name}` is replaced by the value of the parameter. At most 10 URLs, and
        /// 10 segments after the replacement.
        text: Required<MessageText> = "text",
    }
}

request! {
    /// A message. Its other members are those of each new link, without `longUrl`. `parameters` has the values of the
    /// text's variables, and those of the campaign's target.
    pub NewMessage: New, required ["text"], of Message, LinkTarget, PlanMembers, LinkSettings, LinkIssue
}
