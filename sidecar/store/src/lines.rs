//! Many links as one text, a line for each.
//!
//! A statement with a row per link spends most of its time on the transfer of rows. Putting many
//! links into one text is several times as fast.

use std::num::NonZeroU64;

use shortlink_core::records::Records;
use vocabulary::number::parse_decimal;
use vocabulary::{
    CampaignId, CampaignLinkRecord, Code, LinkRecord, Parameters, Record, RedirectStatus, Validity,
};

use crate::value::invalid;

/// A link as a line, which [`push_lines`] reads: its record if that follows from these columns, else
/// its id. A link with only an id is then read as a [`shortlink_core::link::Link`], which determines its
/// record.
macro_rules! line {
    () => {
        "CASE WHEN revoked_at IS NOT NULL THEN concat_ws(' ', code, 410, revision, revoked_at / 1000) \
         WHEN NOT forward_query AND valid_since IS NULL AND paused_at IS NULL AND plan IS NULL \
         THEN concat_ws(' ', code, \
         CASE WHEN campaign_id IS NULL THEN CAST(redirect_status AS TEXT) \
         ELSE 'C' || campaign_id END, \
         revision, coalesce(valid_until, 0), coalesce(target, parameters, '')) \
         ELSE '!' || id END"
    };
}
pub(super) use line;

/// Adds the records of lines, which must be `count` lines; returns the ids of the links without a
/// record in their lines.
pub(super) fn push_lines(
    records: &mut Records,
    lines: &str,
    count: i64,
) -> Result<Vec<i64>, sqlx::Error> {
    let mut others = Vec::new();
    let mut read = 0;
    for line in lines.split('\n') {
        read += 1;
        if let Some(id) = line.strip_prefix('!') {
            others.push(id.parse().map_err(|_error| invalid("id"))?);
        } else {
            push_line(records, line.as_bytes())?;
        }
    }
    if read != count {
        // A target with a line break is none that this program has stored.
        return Err(invalid("target"));
    }
    Ok(others)
}

fn push_line(records: &mut Records, line: &[u8]) -> Result<(), sqlx::Error> {
    let mut fields = line.splitn(5, |&byte| byte == b' ');
    let mut field = || fields.next().unwrap_or_default();
    let code = Code::parse(field()).map_err(|_error| invalid("code"))?;
    let kind = field();
    let revision = parse_decimal(field()).ok_or_else(|| invalid("revision"))?;
    if kind == b"410" {
        let revoked_s = parse_decimal(field()).ok_or_else(|| invalid("revoked_at"))?;
        records.push_record(code, &Record::Revoked { revision }, Some(revoked_s));
        return Ok(());
    }
    let expiry = parse_decimal(field()).ok_or_else(|| invalid("valid_until"))?;
    let validity = Validity::new(None, NonZeroU64::new(expiry));
    let validity = validity.ok_or_else(|| invalid("valid_until"))?;
    let record = match kind.split_first() {
        Some((b'C', id)) => Record::CampaignLink(CampaignLinkRecord {
            campaign: parse_decimal(id)
                .and_then(CampaignId::new)
                .ok_or_else(|| invalid("campaign_id"))?,
            revision,
            validity,
            parameters: Parameters::from_checked(field()),
        }),
        _ => Record::Link(LinkRecord {
            status: parse_decimal(kind)
                .and_then(|status| RedirectStatus::from_code(u16::try_from(status).ok()?))
                .ok_or_else(|| invalid("redirect_status"))?,
            revision,
            forwards_query: false,
            has_click_id: false,
            validity,
            is_plan: false,
            target: field(),
        }),
    };
    let expired_s = Some(expiry).filter(|&second| second > 0 && second <= records.now_s());
    records.push_record(code, &record, expired_s);
    Ok(())
}
