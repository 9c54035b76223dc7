//! What can be done with links.

use serde_json::json;

use super::operation::Operation;
use crate::api::link::{LinkPatch, NewLink};
use crate::core::api_key::Scope;
use crate::http::batch::results::ResultBody;
use crate::http::campaigns::no_such_campaign;
use crate::http::explain::ExplanationBody;
use crate::http::extract::no_such_link;
use crate::http::idempotency::bad_key;
use crate::http::problem::Problem;
use crate::http::qr::no_domain;
use crate::http::wire::{HistoryBody, LinkBody, PageBody};

/// What nginx says of the short domains.
const DOMAINS: [&str; 2] = ["Base", "Domains"];

/// What can be asked of a link that was made.
const OF_LINK: [&str; 11] = [
    "getLink",
    "changeLink",
    "pauseLink",
    "resumeLink",
    "revokeLink",
    "listLinkHistory",
    "explainCode",
    "drawLink",
    "getLinkStats",
    "listLinkVisits",
    "eraseLinkVisits",
];

pub(super) fn operations() -> Vec<Operation> {
    let link = |method, path, id, summary| Operation::new("links", method, path, id, summary);
    vec![
        link("get", "/v1/links", "listLinks", "Lists links, the latest first")
            .scope(Scope::LinksRead)
            .takes(DOMAINS)
            .query(["Limit", "Cursor", "LinkState", "Tag", "ExternalId", "OfCampaign", "CreatedBy"])
            .answers::<PageBody>(200, "A page."),
        link("post", "/v1/links", "createLink", "Makes a link")
            .text("With `dedupe` the link that is there is answered, with 200.")
            .scope(Scope::LinksWrite)
            .takes(DOMAINS)
            .takes(["IdempotencyKey"])
            .takes_json::<NewLink, 2>([
                ("target", json!({
                    "longUrl": "https://www.example.com/spring",
                    "validUntil": "2030-12-31T23:59:59Z",
                    "tags": ["spring"],
                    "externalId": "m-17",
                })),
                ("campaign", json!({ "campaignId": "1", "parameters": { "member": "4711" } })),
            ])
            .answers::<LinkBody>(201, "The link, which is new.")
            .with(["ETag", "Location"])
            .leads_to("shortCode", "code", OF_LINK)
            .answers::<LinkBody>(200, "The link, which was there (`dedupe`).")
            .with(["ETag"])
            .problems([
                bad_key(),
                Problem::taken(),
                Problem::forgotten(),
                Problem::other_request(),
            ]),
        link("post", "/v1/links/batch", "createLinks", "Makes any number of links")
            .text(
                "Each row is what `POST /v1/links` takes. Results come in the order of the rows while \
                 they are still being sent: as an array if an array was sent and no lines are asked \
                 for (`Accept: application/x-ndjson`), else a line each. A row that is wrong harms no \
                 other. In CSV the first line has the names, `tags` are parted by `|`, and members of \
                 objects are called as `parameters.member`.",
            )
            .scope(Scope::LinksWrite)
            .takes(DOMAINS)
            .takes(["IdempotencyKey"])
            .takes(["CampaignOfRows", "Columns", "Delimiter"])
            .takes_rows::<NewLink>(json!([
                { "longUrl": "https://www.example.com/a" },
                { "longUrl": "https://www.example.com/b", "externalId": "m-18" },
            ]))
            .answers::<Vec<ResultBody>>(200, "A result for each row.")
            .or_rows::<ResultBody>("application/x-ndjson")
            .problems([
                bad_key(),
                Problem::query("delimiter must be comma, semicolon or tab."),
                no_such_campaign(),
            ]),
        link("get", "/v1/links/{code}", "getLink", "Shows a link")
            .scope(Scope::LinksRead)
            .takes(DOMAINS)
            .takes(["Code"])
            .answers::<LinkBody>(200, "The link.")
            .with(["ETag"])
            .problems([no_such_link()]),
        change(link("patch", "/v1/links/{code}", "changeLink", "Changes a link"))
            .takes_json::<LinkPatch, 1>([(
                "target",
                json!({ "longUrl": "https://www.example.com/summer", "validUntil": null }),
            )]),
        change(link("delete", "/v1/links/{code}", "revokeLink", "Revokes a link, for good"))
            .text("It is answered 410 from then on, and is still there to be looked at."),
        change(link("post", "/v1/links/{code}/pause", "pauseLink", "Pauses a link"))
            .text("It is answered 410 until it is resumed. Again changes nothing."),
        change(link("post", "/v1/links/{code}/resume", "resumeLink", "Resumes a link"))
            .text("Again changes nothing."),
        link("get", "/v1/links/{code}/history", "listLinkHistory", "Lists what a link was")
            .text("Before each change, the latest first.")
            .scope(Scope::LinksRead)
            .takes(["Code"])
            .query(["Limit", "Cursor"])
            .answers::<HistoryBody>(200, "A page.")
            .problems([no_such_link()]),
        link(
            "get",
            "/v1/links/{code}/explain",
            "explainCode",
            "Tells why a code answers what it answers",
        )
        .text("Of codes without a link, too: what SQL says, what Redis holds, and what follows. What can be \
             no code is not found.")
        .scope(Scope::LinksRead)
        .takes(["Code"])
        .answers::<ExplanationBody>(200, "What is known.")
        .with(["Cache-Control"])
        .problems([no_such_link()]),
        link("get", "/v1/links/{code}/qr", "drawLink", "Draws a link's short URL as a QR code")
            .scope(Scope::LinksRead)
            .takes(DOMAINS)
            .takes(["Code"])
            .answers_text(200, "The drawing.", "image/svg+xml")
            .with(["Cache-Control", "Content-Security-Policy"])
            .problems([no_such_link(), no_domain()]),
    ]
}

/// What all changes of a link share.
fn change(operation: Operation) -> Operation {
    let detail = "If-Match must be * or a list of tags, each between double quotes.";
    operation
        .scope(Scope::LinksWrite)
        .takes(DOMAINS)
        .takes(["Code", "IfMatch"])
        .answers::<LinkBody>(200, "The link as it is now.")
        .with(["ETag"])
        .problems([
            Problem::malformed(detail),
            no_such_link(),
            Problem::revoked(),
            Problem::other_revision(2),
        ])
}
