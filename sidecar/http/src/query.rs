//! Queries: their parameters, and the pages of listings.

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use jiff::Timestamp;
use serde_json::json;
use shortlink_core::link::UploadId;
use shortlink_core::ports::Dimension;
use shortlink_core::target::Target;
use shortlink_core::visit::class::Class;
use vocabulary::{CampaignId, Code, State};

use super::app::SharedApp;
use super::operation::parameter::{self, Parameter, number, of, parameters, string};
use super::operation::{Operation, Taken};
use super::problem::Problem;
use super::words;

/// The default and the maximum number of items on a page.
pub(super) const DEFAULT_LIMIT: u32 = 50;
pub(super) const MAX_LIMIT: u32 = 1000;

parameters! {
    pub(super) LIMIT: query "limit", "Limit", "Maximum number of items on a page.",
        |_| number(1, MAX_LIMIT.into(), DEFAULT_LIMIT.into());
    pub(super) CURSOR: query "cursor", "Cursor",
        "Cursor of the page: the nextCursor of an earlier answer. Default: the first page.",
        |_| json!({ "type": "string", "pattern": "^[-0-9A-Za-z_]+$" });
    pub(super) SINCE: query "since", "Since",
        "Start of the period. Statistics round it down to a whole hour. They begin seven days before \
         their end by default, or 24 hours with `interval=minute`, and at most 800 days before it.", parameter::moment;
    pub(super) UNTIL: query "until", "Until",
        "End of the period, which is not part of it. Statistics round it down to a whole hour, and \
         refuse an empty period. Default: now; statistics then include the current hour.",
        parameter::moment;
    pub(super) CLASS: query "class", "Class", "Only visits of this class.", of::<words::VisitClass>;
    pub(super) OF_CODE: query "code", "OfCode", "Only visits of this link.", of::<words::Code>;
    pub(super) EXTERNAL_ID: query "externalId", "ExternalId",
        "Only links with this id of yours.", string;
    pub(super) OF_CAMPAIGN: query "campaignId", "OfCampaign",
        "Only links of this campaign.", of::<words::CampaignId>;
    pub(super) CLICKED: query "clicked", "Clicked",
        "Only links with a human visit, or with `false` only those without one.",
        |_| json!({ "type": "boolean" });
    pub(super) OF_UPLOAD: query "uploadId", "OfUpload",
        "Only links that this upload created.", of::<words::UploadId>;
}

/// The parameters that the query of an operation can have.
pub(super) trait Query: Sized {
    /// Each of them.
    const PARAMETERS: &'static [Parameter];

    /// Reads a query.
    fn read(text: &str) -> Result<Self, Problem>;
}

/// Declares a query: the type and the parameter of each field.
macro_rules! query {
    ($(#[$about:meta])* $Query:ident { $($field:ident: $Value:ty = $PARAMETER:expr,)+ }) => {
        $(#[$about])*
        #[derive(Default)]
        pub(super) struct $Query {
            $(pub(super) $field: Option<$Value>,)+
        }

        impl $crate::query::Query for $Query {
            const PARAMETERS: &'static [$crate::operation::parameter::Parameter] = &[$($PARAMETER),+];

            fn read(text: &str) -> Result<Self, $crate::problem::Problem> {
                let mut query = Self::default();
                for (name, value) in url::form_urlencoded::parse(text.as_bytes()) {
                    $(if name == $PARAMETER.name {
                        $crate::query::set(&mut query.$field, &name, &value)?;
                        continue;
                    })+
                    return Err($crate::query::only(Self::PARAMETERS));
                }
                Ok(query)
            }
        }
    };
}
pub(super) use query;

/// The query of a request.
pub(super) struct Asked<Q>(pub(super) Q);

impl<Q: Query> FromRequestParts<SharedApp> for Asked<Q> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _app: &SharedApp) -> Result<Self, Problem> {
        Q::read(parts.uri.query().unwrap_or_default()).map(Self)
    }
}

impl<Q: Query> Taken for Asked<Q> {
    fn describe(operation: Operation) -> Operation {
        operation.query(Q::PARAMETERS)
    }
}

/// The value of a parameter.
pub(super) trait Value: Sized {
    /// Reads it.
    ///
    /// # Errors
    /// What a valid value is.
    fn read(text: &str) -> Result<Self, String>;

    /// Combines it with the value of an earlier parameter of the same name.
    fn after(self, _earlier: Option<Self>) -> Self {
        self
    }
}

/// Declares how values of some types are read, and what a valid one is.
macro_rules! values {
    ($($Value:ty: $read:expr, $expected:expr;)+) => {$(
        impl $crate::query::Value for $Value {
            fn read(text: &str) -> Result<Self, String> {
                let read: fn(&str) -> Option<Self> = $read;
                read(text).ok_or_else(|| $expected.into())
            }
        }
    )+};
}
pub(super) use values;

values! {
    String: |text| Some(text.to_owned()), "a text";
    bool: |text| text.parse().ok(), "true or false";
    Timestamp: |text| text.parse().ok(), "a date and time like 2030-12-31T23:59:59Z";
    Class: Class::by_name, format!("one of {}", Class::NAMES);
    State: State::by_name, format!("one of {}", State::ALL.map(State::name).join(", "));
    Dimension: Dimension::by_name, format!("of {}", Dimension::NAMES);
    Code: |text| text.parse().ok(), "a link's code";
    CampaignId: |text| text.parse().ok(), "the id of a campaign";
    UploadId: |text| text.parse().ok(), "the id of an upload: 16 hexadecimal digits, the first of them below 8";
}

impl Value for Target {
    fn read(text: &str) -> Result<Self, String> {
        let target = Self::normalise(text);
        target.map_err(|error| format!("a URL that a link can have as its target: it {error}"))
    }
}

/// A number from 1 to `MOST`.
pub(super) struct Number<const MOST: u32>(pub(super) u32);

impl<const MOST: u32> Value for Number<MOST> {
    fn read(text: &str) -> Result<Self, String> {
        let number = text.parse().ok().filter(|it| (1..=MOST).contains(it));
        number
            .map(Self)
            .ok_or_else(|| format!("a number from 1 to {MOST}"))
    }
}

/// The number of items on a page.
pub(super) type Limit = Number<MAX_LIMIT>;

impl<T: Value> Value for Vec<T> {
    fn read(text: &str) -> Result<Self, String> {
        text.split(',').map(T::read).collect()
    }

    fn after(self, earlier: Option<Self>) -> Self {
        earlier.into_iter().flatten().chain(self).collect()
    }
}

/// Reads the value of a parameter.
pub(super) fn set<T: Value>(field: &mut Option<T>, name: &str, text: &str) -> Result<(), Problem> {
    let value = T::read(text);
    let value = value.map_err(|expected| Problem::query(format!("{name} must be {expected}.")))?;
    *field = Some(value.after(field.take()));
    Ok(())
}

/// Refuses every parameter but these.
pub(super) fn only(parameters: &[Parameter]) -> Problem {
    let names: Vec<&str> = parameters.iter().map(|it| it.name).collect();
    Problem::query(match &names[..] {
        [first @ .., last] if !first.is_empty() => {
            let first = first.join(", ");
            format!("The allowed parameters are {first} and {last}.")
        }
        [] => "No query parameters are allowed.".to_owned(),
        names => format!("The only allowed parameter is {}.", names.concat()),
    })
}

query! {
    /// A page of a listing without filters.
    PageQuery {
        limit: Limit = LIMIT,
        cursor: String = CURSOR,
    }
}

/// The number of items that a page is cut from: one extra item shows whether there is another page.
pub(super) fn one_more(limit: Option<Limit>) -> u32 {
    limit.map_or(DEFAULT_LIMIT, |limit| limit.0) + 1
}

/// Cuts a page off `items`, of which at most `limit` were read ([`one_more`]). Returns the position after its last item
/// if there is another page.
pub(super) fn cut<T, P>(
    mut items: Vec<T>,
    limit: u32,
    position: impl FnOnce(&T) -> P,
) -> (Vec<T>, Option<P>) {
    let length = limit as usize - 1;
    let is_last = items.len() <= length;
    items.truncate(length);
    let last = items.last().filter(|_| !is_last).map(position);
    (items, last)
}
