//! Rows of both databases by the types of their columns, and their conversion.
//!
//! The columns have the same names and meanings in both; only the types of the rows differ.

use std::num::NonZeroU64;

use jiff::Timestamp;
use shortlink_core::campaign::ParameterValues;
use shortlink_core::link::{Destination, Link, Second};
use shortlink_core::ports::{TimeSpan, VisitPage};
use shortlink_core::target::Target;
use shortlink_core::visit::agent::Versioned;
use shortlink_core::visit::class::Class;
use shortlink_core::visit::stored::{StoredAgent, StoredVisit};
use sqlx::Row as _;
use sqlx::error::UnexpectedNullError;
use sqlx::postgres::PgRow;
use sqlx::sqlite::SqliteRow;
use vocabulary::{CampaignId, RedirectStatus};

use crate::shared::invalid;
use crate::texts::to_tags;
use crate::visits;

/// A row of either database.
pub(super) trait Columns {
    /// A number of 64 bits.
    fn number(&self, column: &str) -> Result<Option<i64>, sqlx::Error>;

    /// A number of 32 bits.
    fn small(&self, column: &str) -> Result<i32, sqlx::Error>;

    /// A Boolean.
    fn truth(&self, column: &str) -> Result<bool, sqlx::Error>;

    /// A text.
    fn text(&self, column: &str) -> Result<Option<&str>, sqlx::Error>;

    /// Bytes.
    fn bytes(&self, column: &str) -> Result<Option<&[u8]>, sqlx::Error>;
}

macro_rules! have_columns {
    ($row:ty) => {
        impl Columns for $row {
            fn number(&self, column: &str) -> Result<Option<i64>, sqlx::Error> {
                self.try_get(column)
            }

            fn small(&self, column: &str) -> Result<i32, sqlx::Error> {
                self.try_get(column)
            }

            fn truth(&self, column: &str) -> Result<bool, sqlx::Error> {
                self.try_get(column)
            }

            fn text(&self, column: &str) -> Result<Option<&str>, sqlx::Error> {
                self.try_get(column)
            }

            fn bytes(&self, column: &str) -> Result<Option<&[u8]>, sqlx::Error> {
                self.try_get(column)
            }
        }
    };
}
have_columns!(SqliteRow);
have_columns!(PgRow);

/// A row of a table.
struct Table<'r, R> {
    name: &'static str,
    row: &'r R,
}

impl<'r, R: Columns> Table<'r, R> {
    fn bad(&self, column: &'static str) -> sqlx::Error {
        invalid(self.name, column)
    }

    fn number(&self, column: &'static str) -> Result<i64, sqlx::Error> {
        known(self.row.number(column)?, column)
    }

    fn count(&self, column: &'static str) -> Result<u64, sqlx::Error> {
        u64::try_from(self.number(column)?).map_err(|_error| self.bad(column))
    }

    fn text(&self, column: &'static str) -> Result<&'r str, sqlx::Error> {
        known(self.row.text(column)?, column)
    }

    fn optional_text(&self, column: &'static str) -> Result<Option<String>, sqlx::Error> {
        Ok(self.row.text(column)?.map(str::to_owned))
    }

    fn optional_moment(&self, column: &'static str) -> Result<Option<Timestamp>, sqlx::Error> {
        let moment = self.row.number(column)?.map(Timestamp::from_millisecond);
        moment.transpose().map_err(|_error| self.bad(column))
    }

    fn moment(&self, column: &'static str) -> Result<Timestamp, sqlx::Error> {
        known(self.optional_moment(column)?, column)
    }

    fn non_zero(&self, column: &'static str) -> Result<Option<NonZeroU64>, sqlx::Error> {
        let number = self.row.number(column)?;
        Ok(number.and_then(|number| NonZeroU64::new(number.unsigned_abs())))
    }

    fn redirect_status(&self) -> Result<RedirectStatus, sqlx::Error> {
        let column = "redirect_status";
        let status = u16::try_from(self.row.small(column)?).ok();
        status
            .and_then(RedirectStatus::from_code)
            .ok_or_else(|| self.bad(column))
    }
}

/// Returns a value that must not be NULL.
fn known<T>(value: Option<T>, column: &'static str) -> Result<T, sqlx::Error> {
    value.ok_or_else(|| sqlx::Error::ColumnDecode {
        index: column.to_owned(),
        source: Box::new(UnexpectedNullError),
    })
}

/// Reads a link.
pub(super) fn link(row: &impl Columns) -> Result<Link, sqlx::Error> {
    let name = "links";
    let table = Table { name, row };
    let second = |column: &'static str| -> Result<Option<Second>, sqlx::Error> {
        let Some(second) = row.number(column)? else {
            return Ok(None);
        };
        let moment = Timestamp::from_second(second).ok();
        let second = moment.and_then(Second::at);
        second.map(Some).ok_or_else(|| table.bad(column))
    };
    let destination = match row.text("target")? {
        Some(target) => Destination::Target(Target::from_stored(target.to_owned())),
        None => Destination::Campaign {
            id: CampaignId::new(table.count("campaign_id")?)
                .ok_or_else(|| table.bad("campaign_id"))?,
            values: ParameterValues::from_stored(
                row.text("parameters")?.unwrap_or_default().to_owned(),
            ),
        },
    };
    Ok(Link {
        code: table
            .text("code")?
            .parse()
            .map_err(|_error| table.bad("code"))?,
        destination,
        redirect_status: table.redirect_status()?,
        forward_query: row.truth("forward_query")?,
        revision: table.count("revision")?,
        valid_since: second("valid_since")?,
        valid_until: second("valid_until")?,
        max_visits: table.non_zero("max_visits")?,
        paused_at: table.optional_moment("paused_at")?,
        revoked_at: table.optional_moment("revoked_at")?,
        created_at: table.moment("created_at")?,
        updated_at: table.moment("updated_at")?,
        created_by: table.text("created_by")?.to_owned(),
        external_id: table.optional_text("external_id")?,
        note: table.optional_text("note")?,
        tags: to_tags(row.text("tags")?)?,
    })
}

/// Reads a visit that is to be judged again, with its agent; `None` for a class that a later
/// version has.
fn stored_visit(row: &impl Columns) -> Result<Option<StoredVisit>, sqlx::Error> {
    let name = "visits";
    let table = Table { name, row };
    let versioned = |name, version| -> Result<Option<Versioned>, sqlx::Error> {
        let Some(name) = row.text(name)? else {
            return Ok(None);
        };
        let (name, version) = (name.to_owned(), row.text(version)?.map(str::to_owned));
        Ok(Some(Versioned { name, version }))
    };
    let Some(class) = Class::by_name(table.text("class")?) else {
        return Ok(None);
    };
    let ruleset = u16::try_from(row.small("ruleset")?);
    Ok(Some(StoredVisit {
        number: table.number("id")?,
        at: table.moment("at")?,
        code: table.text("code")?.to_owned(),
        campaign: row.number("campaign_id")?.unwrap_or(visits::ALL),
        host: table.text("host")?.to_owned(),
        visitor: visits::visitor_id(row.bytes("visitor")?),
        method: visits::method(table.text("method")?),
        purpose: row.text("purpose")?.unwrap_or_default().to_owned(),
        user_agent: table.text("user_agent")?.to_owned(),
        isp: table.optional_text("isp")?,
        country: table.optional_text("country")?,
        referrer_host: table.optional_text("referrer_host")?,
        class,
        reason: table.text("reason")?.to_owned(),
        ruleset: ruleset.map_err(|_error| table.bad("ruleset"))?,
        agent: StoredAgent {
            id: table.number("agent_id")?,
            browser: versioned("browser", "browser_version")?,
            os: versioned("os", "os_version")?,
            device: table.text("device")?.to_owned(),
            app: table.optional_text("app")?,
        },
    }))
}

/// Reads visits that follow each other, of which those of a time are wanted.
pub(super) fn visit_page(rows: &[impl Columns], time: TimeSpan) -> Result<VisitPage, sqlx::Error> {
    let mut page = VisitPage::default();
    for row in rows {
        page.last = row.number("id")?;
        page.visits.extend(stored_visit(row)?);
    }
    page.visits.retain(|visit| time.has(visit.at));
    Ok(page)
}
