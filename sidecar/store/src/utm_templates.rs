//! Templates of UTM parameters.

use jiff::Timestamp;
use shortlink_core::audit::{Action, AuditEntry, Subject};
use shortlink_core::boxed;
use shortlink_core::ports::StoreError;
use shortlink_core::query::{MAX_TEMPLATES, Utm, UtmTemplate};

use super::db::Db;
use super::sql::sql;
use super::value::{Row, Value, args, is_storable};
use super::{Store, audit};

/// The lock of transactions that store a template: there is a bound on their number.
const LOCK: i64 = 0x7368_6f72_7475_746d;

const COLUMNS: &str = "name, source, medium, campaign, term, content, updated_at, updated_by";

impl Store {
    /// Lists all templates by their names.
    #[boxed]
    pub async fn list_utm_templates(&self) -> Result<Vec<UtmTemplate>, StoreError> {
        let sql = sql!("SELECT ", COLUMNS, " FROM utm_templates ORDER BY name");
        self.all("list templates", sql, args![], read).await
    }

    /// Stores a template, in place of the one with its name. False, and nothing is stored, if there are [`MAX_TEMPLATES`]
    /// others. The audit log notes it.
    #[boxed]
    pub async fn store_utm_template(&self, template: UtmTemplate) -> Result<bool, StoreError> {
        self.run_tx("store a template", template, |db, template| {
            Box::pin(store(db, template))
        })
        .await
    }

    /// Deletes a template; returns it as it was, if there was one. The audit log notes it.
    #[boxed]
    pub async fn delete_utm_template(
        &self,
        name: &str,
        key_id: &str,
        now: Timestamp,
    ) -> Result<Option<UtmTemplate>, StoreError> {
        if !is_storable(name) {
            return Ok(None);
        }
        let args = (name.to_owned(), key_id.to_owned(), now);
        self.run_tx("delete a template", args, |db, (name, key_id, now)| {
            Box::pin(async move {
                let sql = sql!(
                    "DELETE FROM utm_templates WHERE name = $1 RETURNING ",
                    COLUMNS
                );
                let deleted = db.one(sql, args![name], read).await?;
                if let Some(template) = &deleted {
                    note(db, Action::TemplateDelete, template, key_id, *now).await?;
                }
                Ok(deleted)
            })
        })
        .await
    }
}

async fn store(db: &mut Db<'_>, template: &UtmTemplate) -> Result<bool, sqlx::Error> {
    db.lock(LOCK).await?;
    let count = sql!("SELECT count(*) AS count FROM utm_templates WHERE name <> $1");
    let read_count = |row: &Row| row.get::<i64>("count");
    let others = db.get(count, args![&template.name], read_count).await?;
    if others >= i64::from(MAX_TEMPLATES) {
        return Ok(false);
    }
    let sql = sql!(
        "INSERT INTO utm_templates (",
        COLUMNS,
        ") VALUES ($1, $2, $3, $4, $5, $6, $7, $8) ON CONFLICT (name) DO UPDATE SET \
         (source, medium, campaign, term, content, updated_at, updated_by) = ($2, $3, $4, $5, $6, $7, $8)"
    );
    let mut utm = template.utm.clone();
    let mut values = vec![Value::from(&template.name)];
    values.extend(utm.members().map(|(_, value)| value.clone().into()));
    values.extend_from_slice(args![template.updated_at, &template.updated_by]);
    db.run(sql, &values).await?;
    let (key_id, now) = (&template.updated_by, template.updated_at);
    note(db, Action::TemplateStore, template, key_id, now).await?;
    Ok(true)
}

/// Notes a change in the audit log.
async fn note(
    db: &mut Db<'_>,
    action: Action,
    template: &UtmTemplate,
    key_id: &str,
    at: Timestamp,
) -> Result<(), sqlx::Error> {
    let values = template.utm.parameters();
    let values = values.map(|(name, value)| (name.to_owned(), value.into()));
    let entry = AuditEntry {
        at,
        key_id: Some(key_id.to_owned()),
        action,
        subject: Subject::Template(template.name.clone()),
        detail: values.collect(),
    };
    audit::append(db, &entry).await
}

fn read(row: &Row) -> Result<UtmTemplate, sqlx::Error> {
    let mut utm = Utm::default();
    for (name, value) in utm.members() {
        *value = row.find(name)?;
    }
    Ok(UtmTemplate {
        name: row.get("name")?,
        utm,
        updated_at: row.get("updated_at")?,
        updated_by: row.get("updated_by")?,
    })
}
