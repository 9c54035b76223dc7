//! Merges the layers of settings.

use std::path::{Path, PathBuf};

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
) -> Result<Table, LayerError> {
    let mut settings: Table = toml::from_str(DEFAULTS).map_err(|source| LayerError::Syntax {
        path: PathBuf::from("config.default.toml"),
        source,
    })?;
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

/// The reason that a layer can't be merged into the defaults.
#[derive(Debug, thiserror::Error)]
pub enum LayerError {
    /// A file can't be read.
    #[error("the configuration file {path:?} can't be read")]
    Read {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
    /// A file is not TOML.
    #[error("the configuration file {path:?} is not valid TOML")]
    Syntax {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: toml::de::Error,
    },
    /// A key is unknown.
    #[error("{origin}: there is no setting {key}; allowed are {allowed}")]
    Unknown {
        /// The layer.
        origin: String,
        /// The key.
        key: String,
        /// The allowed keys.
        allowed: String,
    },
    /// A value is of another type than its default.
    #[error("{origin}: {key} must be {expected}")]
    Type {
        /// The layer.
        origin: String,
        /// The key.
        key: String,
        /// The type of the default.
        expected: &'static str,
    },
}

fn add_file(settings: &mut Table, path: &Path) -> Result<(), LayerError> {
    let text = std::fs::read_to_string(path).map_err(|source| LayerError::Read {
        path: path.to_owned(),
        source,
    })?;
    let layer: Table = toml::from_str(&text).map_err(|source| LayerError::Syntax {
        path: path.to_owned(),
        source,
    })?;
    let origin = path.display().to_string();
    for (group, values) in layer {
        let Value::Table(values) = values else {
            // A key outside of any group, unless it has a group's name.
            group_of(settings, &origin, &group)?;
            return Err(LayerError::Type {
                origin,
                key: group,
                expected: "a table",
            });
        };
        for (key, value) in values {
            let slot = slot(settings, &origin, &group, &key)?;
            if !is_of_type(&value, slot) {
                return Err(LayerError::Type {
                    origin,
                    key: format!("{group}.{key}"),
                    expected: type_name(slot),
                });
            }
            *slot = value;
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
) -> Result<(), LayerError> {
    let slot = slot(settings, name, group, key)?;
    let value = match slot {
        Value::Integer(_) => text.parse().ok().map(Value::Integer),
        Value::Boolean(_) => text.parse().ok().map(Value::Boolean),
        Value::Array(_) => {
            let items = text
                .split(',')
                .map(str::trim)
                .filter(|item| !item.is_empty());
            let items = items.map(|item| Value::String(item.to_owned()));
            Some(Value::Array(items.collect()))
        }
        _ => Some(Value::String(text.to_owned())),
    };
    *slot = value.ok_or_else(|| LayerError::Type {
        origin: name.to_owned(),
        key: format!("{group}.{key}"),
        expected: type_name(slot),
    })?;
    Ok(())
}

fn group_of<'a>(
    settings: &'a mut Table,
    origin: &str,
    group: &str,
) -> Result<&'a mut Table, LayerError> {
    let allowed = names(settings);
    match settings.get_mut(group) {
        Some(Value::Table(values)) => Ok(values),
        _ => Err(LayerError::Unknown {
            origin: origin.to_owned(),
            key: format!("[{group}]"),
            allowed,
        }),
    }
}

fn slot<'a>(
    settings: &'a mut Table,
    origin: &str,
    group: &str,
    key: &str,
) -> Result<&'a mut Value, LayerError> {
    let values = group_of(settings, origin, group)?;
    let allowed = names(values);
    values.get_mut(key).ok_or_else(|| LayerError::Unknown {
        origin: origin.to_owned(),
        key: format!("{group}.{key}"),
        allowed,
    })
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
