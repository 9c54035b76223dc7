//! A database of places, as operators bring one.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use maxminddb_writer::Database;
use maxminddb_writer::metadata::IpVersion;
use maxminddb_writer::paths::IpAddrWithMask;

/// Writes a database that knows the country of this machine's own addresses.
///
/// # Panics
/// When it can't.
pub fn write(path: &Path, country: &str) {
    let mut database = Database::default();
    database.metadata.ip_version = IpVersion::V6;
    database.metadata.binary_format_major_version = 2;
    database.metadata.database_type = "Test".to_owned();
    let code = BTreeMap::from([("iso_code", country)]);
    let entry = database.insert_value(BTreeMap::from([("country", code)]));
    let network: IpAddrWithMask = "::7f00:0/104".parse().expect("a network");
    database.insert_node(network, entry.expect("a value"));
    let mut bytes = Vec::new();
    database.write_to(&mut bytes).expect("a database");
    fs::write(path, bytes).expect("a file");
}
