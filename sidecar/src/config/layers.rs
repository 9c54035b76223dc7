//! Merges the layers of settings.

use std::path::Path;

use anyhow::{Context, bail};
use toml::{Table, Value};

/// The bottom layer, which has every key.
const DEFAULTS: &str = include_str!("../../config.default.toml");

/// The prefix of settings in the environment.
const ENVIRONMENT_PREFIX: &str = "SHORTLINK_";

/// The separator of group and key there.
const ENVIRONMENT_SEPARATOR: &str = "__";

/// The only setting whose name is common to many programs.
const DATABASE_URL: &str = "DATABASE_URL";

/// Puts a file and the environment over the defaults. Each key of the result is one of the
/// defaults and of the same type.
pub(super) fn merged(
    file: Option<&Path>,
    environment: impl IntoIterator<Item = (String, String)>,
) -> anyhow::Result<Table> {
    let mut settings: Table = toml::from_str(DEFAULTS).context("the defaults are not valid")?;
    if let Some(path) = file {
        add_file(&mut settings, path)?;
    }
    let mut database_url = None;
    for (name, value) in environment {
        if name == DATABASE_URL {
            database_url = Some(value);
        } else if let Some(key) = name.strip_prefix(ENVIRONMENT_PREFIX)
            && let Some((group, key)) = key.split_once(ENVIRONMENT_SEPARATOR)
        {
            let (group, key) = (group.to_ascii_lowercase(), key.to_ascii_lowercase());
            add_variable(&mut settings, &name, &group, &key, &value)?;
        }
    }
    if let Some(url) = database_url.filter(|url| !url.is_empty()) {
        add_variable(&mut settings, DATABASE_URL, "database", "url", &url)?;
    }
    Ok(settings)
}

fn add_file(settings: &mut Table, path: &Path) -> anyhow::Result<()> {
    let the_file = format!("the configuration file {path:?}");
    let text =
        std::fs::read_to_string(path).with_context(|| format!("{the_file} can't be read"))?;
    let layer: Table =
        toml::from_str(&text).with_context(|| format!("{the_file} is not valid TOML"))?;
    let origin = path.display().to_string();
    for (group, values) in layer {
        let Value::Table(values) = values else {
            // A key outside of any group, unless it has a group's name.
            group_of(settings, &origin, &group)?;
            bail!("{origin}: {group} must be a table");
        };
        for (key, value) in values {
            set(settings, &origin, &group, &key, |_| Some(value))?;
        }
    }
    Ok(())
}

fn add_variable(
    settings: &mut Table,
    name: &str,
    group: &str,
    key: &str,
    text: &str,
) -> anyhow::Result<()> {
    set(settings, name, group, key, |default| match default {
        Value::Integer(_) => text.parse().ok().map(Value::Integer),
        Value::Boolean(_) => text.parse().ok().map(Value::Boolean),
        Value::Array(_) => {
            let items = text.split(',').map(str::trim);
            let items = items.filter(|item| !item.is_empty());
            Some(items.collect::<Vec<_>>().into())
        }
        _ => Some(text.into()),
    })
}

/// Replaces a setting by a value of the same type, which is made for the former one.
fn set(
    settings: &mut Table,
    origin: &str,
    group: &str,
    key: &str,
    value: impl FnOnce(&Value) -> Option<Value>,
) -> anyhow::Result<()> {
    let values = group_of(settings, origin, group)?;
    let allowed = names(values);
    let Some(slot) = values.get_mut(key) else {
        bail!("{origin}: there is no setting {group}.{key}; allowed are {allowed}");
    };
    let Some(value) = value(slot).filter(|value| is_of_type(value, slot)) else {
        bail!("{origin}: {group}.{key} must be {}", type_name(slot));
    };
    *slot = value;
    Ok(())
}

fn group_of<'a>(
    settings: &'a mut Table,
    origin: &str,
    group: &str,
) -> anyhow::Result<&'a mut Table> {
    let allowed = names(settings);
    match settings.get_mut(group) {
        Some(Value::Table(values)) => Ok(values),
        _ => bail!("{origin}: there is no setting [{group}]; allowed are {allowed}"),
    }
}

fn names(table: &Table) -> String {
    let names: Vec<&str> = table.keys().map(String::as_str).collect();
    names.join(", ")
}

fn is_of_type(value: &Value, default: &Value) -> bool {
    match (value, default) {
        (Value::Array(items), Value::Array(_)) => items.iter().all(Value::is_str),
        _ => value.same_type(default),
    }
}

fn type_name(default: &Value) -> &'static str {
    match default {
        Value::Integer(_) => "a whole number",
        Value::Boolean(_) => "true or false",
        Value::Array(_) => "a list of texts",
        _ => "a text",
    }
}
