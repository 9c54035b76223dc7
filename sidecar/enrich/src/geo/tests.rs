use std::collections::BTreeMap;
use std::fs;
use std::time::SystemTime;

use maxminddb_writer::Database;
use maxminddb_writer::metadata::IpVersion;
use maxminddb_writer::paths::IpAddrWithMask;
use proptest::prelude::*;
use serde::Serialize;
use serde_json::{Value, json};
use shortlink_core::visit::place::PlaceSource;
use tempfile::TempDir;

use super::*;
use crate::xdb::tests::written as xdb;

/// A value as databases hold it: MaxMind's format knows no null and no negative numbers here.
#[derive(Serialize)]
#[serde(untagged)]
enum Data {
    Text(String),
    Number(u32),
    List(Vec<Data>),
    Map(BTreeMap<String, Data>),
}

impl From<&Value> for Data {
    fn from(value: &Value) -> Self {
        match value {
            Value::String(text) => Self::Text(text.clone()),
            Value::Array(items) => Self::List(items.iter().map(Self::from).collect()),
            Value::Object(members) => {
                let members = members.iter();
                Self::Map(
                    members
                        .map(|(key, value)| (key.clone(), value.into()))
                        .collect(),
                )
            }
            other => Self::Number(other.as_u64().and_then(|n| n.try_into().ok()).expect("u32")),
        }
    }
}

fn mmdb(entries: &[(&str, Value)]) -> Vec<u8> {
    let mut database = Database::default();
    database.metadata.ip_version = IpVersion::V6;
    database.metadata.binary_format_major_version = 2;
    database.metadata.database_type = "Test".to_owned();
    for (network, value) in entries {
        let data = database.insert_value(Data::from(value)).expect("a value");
        let network: IpAddrWithMask = network.parse().expect("a network");
        database.insert_node(network, data);
    }
    let mut bytes = Vec::new();
    database.write_to(&mut bytes).expect("a database");
    bytes
}

/// As in GeoLite2-City.
fn city(name: &str) -> Vec<u8> {
    let entry = json!({
        "country": {"iso_code": "DE", "names": {"en": "Germany", "zh-CN": "德国"}},
        "subdivisions": [
            {"iso_code": "BY", "names": {"en": "Bavaria"}},
            {"iso_code": "X", "names": {"en": "Within"}},
        ],
        "city": {"names": {"en": name, "zh-CN": format!("{name}市")}},
    });
    // As in GeoLite2-Country, or for an address of which no more is known.
    let country = json!({"country": {"iso_code": "FR", "names": {"en": "France"}}});
    mmdb(&[("::c000:200/120", entry), ("2001:db8::/32", country)])
}

fn asn() -> Vec<u8> {
    let entry = |number: u32, name: &str| {
        json!({
            "autonomous_system_number": number,
            "autonomous_system_organization": name,
        })
    };
    mmdb(&[
        ("::c000:200/120", entry(64496, "Example Telecom")),
        ("::100:100/120", entry(64497, "Chinanet")),
        ("2001:db8::/32", entry(64498, "Example Six")),
    ])
}

fn regions() -> Vec<u8> {
    xdb(
        3,
        &[
            ("1.0.1.0", "1.0.1.255", "中国|福建省|福州市|电信|CN"),
            ("192.0.2.0", "192.0.2.255", "德国|0|0|0|DE"),
        ],
    )
}

struct Files {
    folder: TempDir,
}

impl Files {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        Self { folder }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Writes a file as one should, beside and renamed.
    fn put(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let (path, beside) = (self.path(name), self.path("beside"));
        fs::write(&beside, bytes).expect("room");
        fs::rename(&beside, &path).expect("a rename");
        path
    }
}

fn place(geo: &Geo, address: &str) -> Place {
    geo.place(address.parse().expect("an address"))
}

fn texts(place: &Place) -> [&str; 5] {
    let texts = [
        &place.country,
        &place.country_name,
        &place.province,
        &place.city,
        &place.isp,
    ];
    texts.map(|text| text.as_deref().unwrap_or_default())
}

#[test]
fn without_databases_nothing_is_known() {
    let geo = Geo::open(GeoFiles::default()).expect("nothing to open");
    assert!(!geo.is_configured());
    let place = place(&geo, "192.0.2.1");
    assert_eq!(place, Place::default());
    assert_eq!(place.source, PlaceSource::None);
    assert_eq!(geo.look(), 0);
}

#[test]
fn places_come_from_databases_in_maxminds_format() {
    let files = Files::new();
    let geo = |language: &str| {
        let files = GeoFiles {
            geo_database: Some(files.put("city.mmdb", &city("Munich"))),
            asn_database: Some(files.put("asn.mmdb", &asn())),
            ip2region: Vec::new(),
            language: language.to_owned(),
        };
        Geo::open(files).expect("databases")
    };
    let english = geo("en");
    let found = place(&english, "192.0.2.1");
    assert_eq!(
        texts(&found),
        ["DE", "Germany", "Bavaria", "Munich", "Example Telecom"]
    );
    assert_eq!(
        (found.asn, found.source),
        (Some(64496), PlaceSource::MaxMind)
    );
    let found = place(&english, "2001:db8::1");
    assert_eq!(texts(&found), ["FR", "France", "", "", "Example Six"]);
    // The network of an address may be known and its place not.
    let found = place(&english, "1.0.1.1");
    assert_eq!(texts(&found), ["", "", "", "", "Chinanet"]);
    assert_eq!(found.source, PlaceSource::None);
    assert_eq!(place(&english, "203.0.113.1"), Place::default());
    // Names that the database does not have in the language are English.
    let chinese = place(&geo("zh-CN"), "192.0.2.1");
    assert_eq!(texts(&chinese)[1..4], ["德国", "Bavaria", "Munich市"]);
}

#[test]
fn other_shapes_of_databases_are_read_as_far_as_they_go() {
    let files = Files::new();
    let open = |entry: Value| {
        let bytes = mmdb(&[("::c000:200/120", entry)]);
        let geo = Geo::open(GeoFiles {
            geo_database: Some(files.put("other.mmdb", &bytes)),
            language: "en".to_owned(),
            ..GeoFiles::default()
        });
        place(&geo.expect("a database"), "192.0.2.1")
    };
    // GeoIP2-ISP, flat ones, and ones that have something else where a place would be.
    let isp = open(json!({"isp": "Example", "autonomous_system_number": 7}));
    assert_eq!((texts(&isp)[4], isp.asn), ("Example", Some(7)));
    let info = open(json!({"asn": "AS16509", "as_name": "Example Servers"}));
    assert_eq!(
        (texts(&info)[4], info.asn),
        ("Example Servers", Some(16_509))
    );
    let odd = open(json!({"isp": "Example", "asn": "16509"}));
    assert_eq!(odd.asn, None);
    let flat = open(json!({"country_code": "nz", "state1": "Otago", "city": "Dunedin"}));
    assert_eq!(texts(&flat)[..4], ["NZ", "", "Otago", "Dunedin"]);
    let flat = open(json!({"country": "NZ", "country_name": "New Zealand", "region": "Otago"}));
    assert_eq!(texts(&flat)[..4], ["NZ", "New Zealand", "Otago", ""]);
    let strange = open(json!({"country": {"iso_code": 5}, "subdivisions": {}, "city": []}));
    assert_eq!(strange, Place::default());
    let long = open(json!({"country": {"names": {"en": "x".repeat(500)}}}));
    assert_eq!(texts(&long)[1].len(), 128);
}

#[test]
fn the_database_that_knows_more_is_believed() {
    let files = Files::new();
    let geo = Geo::open(GeoFiles {
        geo_database: Some(files.put("city.mmdb", &city("Munich"))),
        asn_database: Some(files.put("asn.mmdb", &asn())),
        ip2region: vec![files.put("v4.xdb", &regions())],
        language: "en".to_owned(),
    });
    let geo = geo.expect("databases");
    let found = place(&geo, "1.0.1.1");
    assert_eq!(texts(&found), ["CN", "中国", "福建省", "福州市", "电信"]);
    assert_eq!(
        (found.asn, found.source),
        (Some(64497), PlaceSource::Ip2Region)
    );
    let found = place(&geo, "192.0.2.1");
    assert_eq!(
        texts(&found),
        ["DE", "Germany", "Bavaria", "Munich", "Example Telecom"]
    );
    assert_eq!(found.source, PlaceSource::MaxMind);
}

#[test]
fn a_database_that_cant_be_used_is_refused_by_name() {
    let files = Files::new();
    let refused = |files: GeoFiles| {
        let error = Geo::open(files).err().expect("no databases");
        format!("{:#}", anyhow::Error::from(error))
    };
    let message = refused(GeoFiles {
        geo_database: Some(files.path("missing.mmdb")),
        ..GeoFiles::default()
    });
    assert!(message.contains("visits.geo_database"), "{message}");
    assert!(message.contains("missing.mmdb"), "{message}");
    assert!(message.contains("No such file"), "{message}");
    let message = refused(GeoFiles {
        asn_database: Some(files.put("asn.mmdb", b"no database")),
        ..GeoFiles::default()
    });
    assert!(message.contains("visits.asn_database"), "{message}");
    assert!(message.contains("MaxMind's format"), "{message}");
    let message = refused(GeoFiles {
        ip2region: vec![files.put("v4.xdb", b"no database")],
        ..GeoFiles::default()
    });
    assert!(message.contains("visits.ip2region"), "{message}");
    assert!(message.contains("it is too short"), "{message}");
}

#[test]
fn a_replaced_database_is_used_and_a_bad_one_is_not() {
    let files = Files::new();
    let path = files.put("city.mmdb", &city("Munich"));
    let geo = Geo::open(GeoFiles {
        geo_database: Some(path.clone()),
        language: "en".to_owned(),
        ..GeoFiles::default()
    });
    let geo = geo.expect("a database");
    let city_now = || place(&geo, "192.0.2.1").city.expect("a city");
    assert_eq!(geo.look(), 0, "nothing has happened");
    files.put("city.mmdb", &city("Berlin"));
    assert_eq!(city_now(), "Munich");
    assert_eq!(geo.look(), 1);
    assert_eq!((city_now(), geo.look()), ("Berlin".to_owned(), 0));
    // Copied over and not yet complete: the end, which says what there is, is missing.
    let next = city("Hamburg");
    fs::write(&path, &next[..next.len() / 2]).expect("room");
    assert_eq!((geo.look(), city_now()), (0, "Berlin".to_owned()));
    fs::write(&path, &next).expect("room");
    assert_eq!((geo.look(), city_now()), (1, "Hamburg".to_owned()));
    // Gone, and back.
    fs::remove_file(&path).expect("a file");
    assert_eq!((geo.look(), city_now()), (0, "Hamburg".to_owned()));
    assert_eq!(geo.look(), 0);
    files.put("city.mmdb", &city("Cologne"));
    assert_eq!((geo.look(), city_now()), (1, "Cologne".to_owned()));
}

#[test]
fn a_bad_file_is_an_error_once() {
    let files = Files::new();
    let path = files.put("v4.xdb", &regions());
    let watched = Watched::open(&path, Xdb::open).expect("a database");
    let look = || watched.look().map_err(|error| error.to_string());
    assert_eq!(look(), Ok(false));
    files.put("v4.xdb", b"bad");
    assert!(look().is_err());
    assert_eq!(look(), Ok(false));
    fs::remove_file(&path).expect("a file");
    assert!(look().is_err());
    assert_eq!(look(), Ok(false));
    files.put("v4.xdb", b"worse");
    assert!(look().is_err());
    // The same bytes in another file, or at another time, are another file.
    let file = fs::File::options().write(true).open(&path).expect("a file");
    file.set_modified(SystemTime::UNIX_EPOCH).expect("a time");
    assert!(look().is_err());
    files.put("v4.xdb", &regions());
    assert_eq!(look(), Ok(true));
}

#[test]
fn a_database_that_was_replaced_is_read() {
    let files = Files::new();
    let geo = Geo::open(GeoFiles {
        ip2region: vec![files.put("v4.xdb", &regions())],
        ..GeoFiles::default()
    });
    let geo = geo.expect("a database");
    files.put(
        "v4.xdb",
        &xdb(2, &[("1.0.1.0", "1.0.1.9", "中国|0|江苏省|南京市|联通")]),
    );
    assert_eq!(geo.look(), 1);
    assert_eq!(place(&geo, "1.0.1.1").city.as_deref(), Some("南京市"));
}

proptest! {
    #[test]
    fn a_damaged_database_says_something_or_nothing(
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..32),
        address in any::<u128>(),
    ) {
        let files = Files::new();
        let mut bytes = city("Munich");
        for (index, value) in damage {
            let place = index.index(bytes.len());
            bytes[place] = value;
        }
        let path = files.put("city.mmdb", &bytes);
        if let Ok(geo) = Geo::open(GeoFiles {
            geo_database: Some(path.clone()),
            asn_database: Some(path),
            language: "zh-CN".to_owned(),
            ..GeoFiles::default()
        }) {
            for address in [address, 0xc000_0201, 0x2001_0db8 << 96] {
                let _ = geo.place(IpAddr::from(address.to_be_bytes()));
            }
            let _ = place(&geo, "192.0.2.1");
        }
    }
}
