//! What is told of visits.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};

use super::operation::Operation;
use crate::core::api_key::Scope;
use crate::http::campaigns::no_such_campaign;
use crate::http::domains;
use crate::http::extract::no_such_link;
use crate::http::live::{CountBody, EndBody, NothingBody};
use crate::http::problem::Problem;
use crate::http::stats::{DomainsBody, StatsBody};
use crate::http::visits::{ErasureBody, PageBody, VisitBody};

/// The data of an event of the live feed.
enum LiveData {}

impl JsonSchema for LiveData {
    fn schema_name() -> Cow<'static, str> {
        "LiveData".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "By the event: `visit`; `sampled` and `lost`; `end`; all others.",
            "anyOf": [
                generator.subschema_for::<VisitBody>(),
                generator.subschema_for::<CountBody>(),
                generator.subschema_for::<EndBody>(),
                generator.subschema_for::<NothingBody>(),
            ],
        })
    }
}

pub(super) fn operations() -> Vec<Operation> {
    let new = |method, path, id, summary| Operation::new("visits", method, path, id, summary);
    let stats = |operation: Operation| {
        operation
            .scope(Scope::StatsRead)
            .query([
                "Since",
                "Until",
                "Interval",
                "By",
                "Values",
                "ValueIntervals",
            ])
            .answers::<StatsBody>(200, "What was counted.")
    };
    vec![
        stats(new("get", "/v1/stats", "getStats", "Counts all visits")),
        stats(new("get", "/v1/links/{code}/stats", "getLinkStats", "Counts visits of a link"))
            .takes(["Code"])
            .problems([no_such_link()]),
        stats(new(
            "get",
            "/v1/campaigns/{id}/stats",
            "getCampaignStats",
            "Counts visits of a campaign's links",
        ))
        .takes(["CampaignId"])
        .problems([no_such_campaign()]),
        new("get", "/v1/domains", "listDomains", "Tells of the short domains")
            .text(
                "As each nginx has them, which says so with every request that its internal server \
                 passes on, with visits by minute, and whether a domain has fallen, as one that is \
                 blocked.",
            )
            .scope(Scope::StatsRead)
            .takes(["Base", "Domains", "States", "Node"])
            .answers::<domains::DomainsBody>(200, "All that are listed or visited."),
        new("get", "/v1/domains/stats", "getDomainStats", "Counts visits of each short domain")
            .text("By minute, so that a domain that is blocked shows. Minutes without are left out.")
            .scope(Scope::StatsRead)
            .query(["Minutes"])
            .answers::<DomainsBody>(200, "What was counted."),
        new("get", "/v1/visits", "listVisits", "Lists visits, the latest first")
            .text(
                "With `Accept: application/x-ndjson` or `text/csv` all of them, as lines; such an \
                 answer that can't be finished breaks off.",
            )
            .scope(Scope::StatsRead)
            .query(["Limit", "Cursor", "Class", "OfCode", "Since", "Until"])
            .answers::<PageBody>(200, "A page, or all of them.")
            .or_rows::<VisitBody>("application/x-ndjson")
            .or_text("text/csv"),
        new("delete", "/v1/visits", "eraseVisits", "Erases visits of some links")
            .text("Of all links that you call so, or of a campaign; one of both must be given. Counts \
                   stay: there is nobody in them.")
            .scope(Scope::LinksWrite)
            .query(["ExternalId", "OfCampaign"])
            .answers::<ErasureBody>(200, "A receipt."),
        new("get", "/v1/links/{code}/visits", "listLinkVisits", "Lists visits of a link")
            .scope(Scope::StatsRead)
            .takes(["Code"])
            .query(["Limit", "Cursor", "Class", "Since", "Until"])
            .answers::<PageBody>(200, "A page.")
            .problems([no_such_link()]),
        new("delete", "/v1/links/{code}/visits", "eraseLinkVisits", "Erases visits of a link")
            .text("Counts stay: there is nobody in them.")
            .scope(Scope::LinksWrite)
            .takes(["Code"])
            .answers::<ErasureBody>(200, "A receipt.")
            .problems([no_such_link()]),
        new("get", "/v1/visits/live", "listenToVisits", "Tells of visits while they happen")
            .text(
                "Server-sent events. `begun` (with an id): visits are told from now on. `visit` (with \
                 an id): one. `sampled` and `lost`: so many were left out, since there were more than \
                 `visits.live_per_s`, or you do not read fast enough. `interrupted` and `resumed`: \
                 Redis is away, and back. `gap`: behind your `Last-Event-ID` there may have been \
                 visits that are not told. `end`: the key opens this no more, or the service stops. \
                 The data of each is JSON.",
            )
            .scope(Scope::StatsRead)
            .takes(["LastEventId"])
            .query(["Class", "OfCode", "Domain"])
            .answers_events::<LiveData>(200, "Events.")
            .with(["Cache-Control"])
            .problems([
                Problem::malformed(
                    "The header Last-Event-ID must be the id of an event of this feed.",
                ),
                Problem::not_found("The live feed is switched off (visits.live_listeners)."),
            ]),
    ]
}
