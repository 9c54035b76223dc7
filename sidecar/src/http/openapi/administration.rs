//! What can be done with API keys, and what was done.

use serde_json::json;

use super::operation::Operation;
use crate::api::key::{KeyBody, KeyPatch, NewKey, Rotation};
use crate::core::api_key::Scope;
use crate::core::ports::KeyRefusal;
use crate::http::audit::PageBody as AuditPage;
use crate::http::codespace::CodespaceBody;
use crate::http::keys::body::{PageBody, SecretBody};
use crate::http::keys::no_such_key;

pub(super) fn operations() -> Vec<Operation> {
    let new = |method, path, id, summary| {
        Operation::new("keys", method, path, id, summary).scope(Scope::KeysAdmin)
    };
    vec![
        new(
            "get",
            "/v1/keys",
            "listKeys",
            "Lists API keys, the latest first",
        )
        .query(["Limit", "Cursor"])
        .answers::<PageBody>(200, "A page."),
        new("post", "/v1/keys", "createKey", "Makes an API key")
            .takes_json::<NewKey, 1>([(
                "key",
                json!({
                    "name": "shop",
                    "scopes": ["links:write", "links:read"],
                    "rateLimit": { "requestsPerSecond": 50, "burst": 200 },
                    "policy": { "strategies": ["pool"], "allowedDomains": ["example.com"] },
                }),
            )])
            .answers::<SecretBody>(201, "The key, with its secret: this once.")
            .with(["Location", "Cache-Control"])
            .leads_to(
                "id",
                "id",
                ["getKey", "changeKey", "rotateKey", "revokeKey"],
            )
            .problems([KeyRefusal::Scope(Scope::Admin).into()]),
        new("get", "/v1/keys/{id}", "getKey", "Shows an API key")
            .takes(["KeyId"])
            .answers::<KeyBody>(200, "The key.")
            .problems([no_such_key()]),
        new("patch", "/v1/keys/{id}", "changeKey", "Changes an API key")
            .text("Each member as a whole.")
            .takes(["KeyId"])
            .takes_json::<KeyPatch, 1>([("expiry", json!({ "expiresAt": "2030-12-31T23:59:59Z" }))])
            .answers::<KeyBody>(200, "The key as it is now.")
            .problems([
                no_such_key(),
                KeyRefusal::Scope(Scope::Admin).into(),
                KeyRefusal::Revoked.into(),
                KeyRefusal::LastAdmin.into(),
            ]),
        new(
            "delete",
            "/v1/keys/{id}",
            "revokeKey",
            "Revokes an API key, for good",
        )
        .takes(["KeyId"])
        .answers::<KeyBody>(200, "The key as it is now.")
        .problems([
            no_such_key(),
            KeyRefusal::Scope(Scope::Admin).into(),
            KeyRefusal::LastAdmin.into(),
        ]),
        new(
            "post",
            "/v1/keys/{id}/rotate",
            "rotateKey",
            "Makes a successor of an API key",
        )
        .text("With the same rights. The old key goes on for a time.")
        .takes(["KeyId"])
        .takes_json::<Rotation, 1>([("day", json!({ "overlapSeconds": 86_400 }))])
        .answers::<SecretBody>(201, "The successor, with its secret: this once.")
        .with(["Location", "Cache-Control"])
        .problems([
            no_such_key(),
            KeyRefusal::Scope(Scope::Admin).into(),
            KeyRefusal::Revoked.into(),
            KeyRefusal::Expired.into(),
            KeyRefusal::Rotated.into(),
        ]),
        Operation::new(
            "keys",
            "get",
            "/v1/audit",
            "listAudit",
            "Lists what was done",
        )
        .text("To keys, campaigns and links, the latest first. Who made a link is told by it.")
        .scope(Scope::Admin)
        .query(["Limit", "Cursor", "Subject", "ByKey", "Action"])
        .answers::<AuditPage>(200, "A page."),
        Operation::new(
            "links",
            "get",
            "/v1/codespace",
            "getCodespace",
            "Tells how full codes are",
        )
        .scope(Scope::LinksRead)
        .answers::<CodespaceBody>(200, "By the number of characters.")
        .with(["Cache-Control"]),
    ]
}
