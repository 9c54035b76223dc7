//! `/v1/utm-templates`: UTM parameters for new links, which a team shares.

use std::collections::HashMap;

use axum::Json;
use axum::extract::State;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::json;
use shortlink_api::fields::Fields;
use shortlink_api::members::{Members, Usage};
use shortlink_api::utm_template::{NewUtmTemplate, UtmTemplateBody, UtmTemplateMembers};
use shortlink_core::query::{MAX_TEMPLATE_NAME, MAX_TEMPLATE_VALUE, MAX_TEMPLATES, UtmTemplate};
use shortlink_service::access::Caller;

use super::app::{App, SharedApp};
use super::auth::{MayRead, MayWrite, check_reaches_all};
use super::extract::{JsonObject, in_path};
use super::operation::operations;
use super::operation::parameter::parameters;
use super::problem::Problem;

in_path! {
    /// The name in the path.
    NameInPath(String): NAME, no_such_template
}

/// 404: the template in the path is unknown.
fn no_such_template() -> Problem {
    Problem::not_found("There is no template with this name.")
}

parameters! {
    NAME: path "name", "UtmTemplateName", "Name of the template.",
        |_| json!({ "type": "string", "minLength": 1, "maxLength": MAX_TEMPLATE_NAME });
}

operations! {
    get "/v1/utm-templates", "listUtmTemplates", "Lists the templates of UTM parameters by their names", list {
        .answers::<ListBody>(200, "The templates.")
    }
    put "/v1/utm-templates", "storeUtmTemplate", "Stores a template of UTM parameters", store {
        .text("Replaces the template with this name. Links do not change with templates.")
        .takes_json::<NewUtmTemplate, 1>([("newsletter", json!({
            "name": "Newsletter",
            "utm": { "source": "newsletter", "medium": "sms" },
        }))])
        .answers::<UtmTemplateBody>(200, "The template.").leads_to("name", NAME)
        .problems([Problem::too_many_templates()])
    }
    delete "/v1/utm-templates/{name}", "deleteUtmTemplate", "Deletes a template of UTM parameters", delete {
        .answers::<UtmTemplateBody>(200, "The template as it was.")
    }
}

/// All templates.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "UtmTemplates")]
struct ListBody {
    /// The templates by their names.
    #[schemars(length(max = MAX_TEMPLATES))]
    templates: Vec<UtmTemplateBody>,
}

/// Templates are those of all.
fn check(caller: &Caller) -> Result<(), Problem> {
    check_reaches_all(caller, "templates are shared with all API keys")
}

/// `GET /v1/utm-templates`
async fn list(
    State(app): State<SharedApp>,
    MayRead(caller): MayRead,
) -> Result<Json<ListBody>, Problem> {
    check(&caller)?;
    let templates = app.store.list_utm_templates().await?;
    let names = names(&app, &templates).await?;
    let templates = templates.iter().map(|it| UtmTemplateBody::new(it, &names));
    Ok(Json(ListBody {
        templates: templates.collect(),
    }))
}

/// `PUT /v1/utm-templates`
async fn store(
    State(app): State<SharedApp>,
    MayWrite(caller): MayWrite,
    JsonObject(members): JsonObject,
) -> Result<Json<UtmTemplateBody>, Problem> {
    check(&caller)?;
    let mut fields = Fields::new(members);
    let given = UtmTemplateMembers::read(&mut fields, Usage::New);
    let name = fields.required("name", given.name);
    let utm = fields.required("utm", given.utm);
    if let Some(utm) = &utm {
        if utm.parameters().next().is_none() {
            fields.refuse("utm", "must have at least one parameter");
        }
        for (name, value) in utm.parameters() {
            if value.chars().count() > MAX_TEMPLATE_VALUE {
                let detail = format!("must have at most {MAX_TEMPLATE_VALUE} characters");
                fields.refuse_at(&["utm", name], detail);
            }
        }
    }
    fields.finish()?;
    let template = UtmTemplate {
        name: name.ok_or_else(Problem::internal)?,
        utm: utm.ok_or_else(Problem::internal)?,
        updated_at: app.clock.now(),
        updated_by: caller.key().id.clone(),
    };
    if !app.store.store_utm_template(template.clone()).await? {
        return Err(Problem::too_many_templates());
    }
    shown(&app, &template).await
}

/// `DELETE /v1/utm-templates/{name}`
async fn delete(
    State(app): State<SharedApp>,
    MayWrite(caller): MayWrite,
    NameInPath(name): NameInPath,
) -> Result<Json<UtmTemplateBody>, Problem> {
    check(&caller)?;
    let (key_id, now) = (&caller.key().id, app.clock.now());
    let deleted = app.store.delete_utm_template(&name, key_id, now).await?;
    shown(&app, &deleted.ok_or_else(no_such_template)?).await
}

async fn shown(app: &App, template: &UtmTemplate) -> Result<Json<UtmTemplateBody>, Problem> {
    let names = names(app, std::slice::from_ref(template)).await?;
    Ok(Json(UtmTemplateBody::new(template, &names)))
}

async fn names(app: &App, templates: &[UtmTemplate]) -> Result<HashMap<String, String>, Problem> {
    let ids: Vec<&str> = templates.iter().map(|it| it.updated_by.as_str()).collect();
    Ok(app.store.key_names(&ids).await?)
}
