use std::net::{Ipv4Addr, Ipv6Addr};

use proptest::prelude::*;

use super::*;

/// Writes a database as ip2region's own program does: ranges cut where the first two bytes of
/// addresses change, one entry for each.
pub(crate) fn written(version: u16, ranges: &[(&str, &str, &str)]) -> Vec<u8> {
    let is_six = ranges[0].0.contains(':');
    let bits = if is_six { 128 } else { 32 };
    let mut entries: Vec<(u128, u128, &str)> = Vec::new();
    for (from, to, region) in ranges {
        let number = |text: &str| match text.parse().expect("an address") {
            IpAddr::V4(address) => u128::from(address.to_bits()),
            IpAddr::V6(address) => address.to_bits(),
        };
        let (mut from, to) = (number(from), number(to));
        while from <= to {
            let end = (from | (u128::MAX >> (128 - bits + 16))).min(to);
            entries.push((from, end, region));
            from = end + 1;
        }
    }
    let mut bytes = vec![0; HEADER + INDEX];
    let mut places = Vec::new();
    for (_, _, region) in &entries {
        places.push(bytes.len());
        bytes.extend_from_slice(region.as_bytes());
    }
    let first = bytes.len();
    let mut last = first;
    for ((from, to, region), place) in entries.into_iter().zip(places) {
        last = bytes.len();
        for address in [from, to] {
            if is_six {
                bytes.extend_from_slice(&address.to_be_bytes());
            } else {
                bytes.extend_from_slice(&(address as u32).to_le_bytes());
            }
        }
        bytes.extend_from_slice(&(region.len() as u16).to_le_bytes());
        bytes.extend_from_slice(&(place as u32).to_le_bytes());
        let slot = HEADER + (from >> (bits - 16)) as usize * 8;
        if bytes[slot..slot + 4] == [0; 4] {
            bytes[slot..slot + 4].copy_from_slice(&(last as u32).to_le_bytes());
        }
        let end = bytes.len() as u32;
        bytes[slot + 4..slot + 8].copy_from_slice(&end.to_le_bytes());
    }
    bytes[..2].copy_from_slice(&version.to_le_bytes());
    bytes[8..12].copy_from_slice(&(first as u32).to_le_bytes());
    bytes[12..16].copy_from_slice(&(last as u32).to_le_bytes());
    if version > 2 {
        bytes[16..18].copy_from_slice(&(if is_six { 6_u16 } else { 4 }).to_le_bytes());
    }
    bytes
}

const FOUR: [(&str, &str, &str); 4] = [
    ("1.0.0.0", "1.0.0.255", "澳大利亚|昆士兰|布里斯班|0|AU"),
    ("1.0.1.0", "1.0.3.255", "中国|福建省|福州市|电信|CN"),
    ("1.0.4.0", "1.2.255.255", "中国|广东省|深圳市|移动|CN"),
    ("10.0.0.0", "10.255.255.255", "0|0|内网IP|内网IP"),
];

fn place(xdb: &Xdb, address: &str) -> Place {
    xdb.place(address.parse().expect("an address"))
}

#[test]
fn addresses_are_found_in_their_ranges() {
    let xdb = Xdb::new(written(3, &FOUR)).expect("a database");
    let city = |address| place(&xdb, address).city;
    for (address, found) in [
        ("0.255.255.255", None),
        ("1.0.0.0", Some("布里斯班")),
        ("1.0.0.255", Some("布里斯班")),
        ("1.0.1.0", Some("福州市")),
        ("1.0.3.255", Some("福州市")),
        ("1.0.4.0", Some("深圳市")),
        ("1.1.128.7", Some("深圳市")),
        ("1.2.255.255", Some("深圳市")),
        ("1.3.0.0", None),
        ("10.1.2.3", None),
        ("255.255.255.255", None),
        ("2001:db8::1", None),
    ] {
        assert_eq!(city(address).as_deref(), found, "{address}");
    }
    assert_eq!(place(&xdb, "10.1.2.3"), Place::default());
    let all = place(&xdb, "1.0.2.0");
    assert_eq!(all.country.as_deref(), Some("CN"));
    assert_eq!(all.country_name.as_deref(), Some("中国"));
    assert_eq!(all.province.as_deref(), Some("福建省"));
    assert_eq!(all.isp.as_deref(), Some("电信"));
    assert_eq!(all.source, PlaceSource::Ip2Region);
}

#[test]
fn version_2_is_read_and_so_are_addresses_of_ipv6() {
    let xdb = Xdb::new(written(2, &FOUR)).expect("a database");
    assert_eq!(place(&xdb, "1.0.2.0").city.as_deref(), Some("福州市"));
    let six = [
        (
            "2001:db8::",
            "2001:db8:ffff::",
            "中国|北京|北京市|教育网|CN",
        ),
        (
            "2400::",
            "2402:ffff::",
            "United States|California|San Jose|xTom|US",
        ),
    ];
    let xdb = Xdb::new(written(3, &six)).expect("a database");
    for (address, found) in [
        ("2001:db8::1", Some("北京市")),
        ("2001:db8:ffff::", Some("北京市")),
        ("2001:db8:ffff::1", None),
        ("2401:1::", Some("San Jose")),
        ("1.0.2.0", None),
    ] {
        assert_eq!(place(&xdb, address).city.as_deref(), found, "{address}");
    }
}

#[test]
fn both_forms_of_regions_are_read() {
    let texts = |region: &str| {
        let place = parsed(region.as_bytes());
        let texts = [
            place.country,
            place.country_name,
            place.province,
            place.city,
            place.isp,
        ];
        texts.map(Option::unwrap_or_default)
    };
    for (region, found) in [
        (
            "中国|广东省|深圳市|电信|CN",
            ["CN", "中国", "广东省", "深圳市", "电信"],
        ),
        (
            "中国|0|广东省|深圳市|电信",
            ["CN", "中国", "广东省", "深圳市", "电信"],
        ),
        (
            "中国|广东省|深圳市|电信",
            ["CN", "中国", "广东省", "深圳市", "电信"],
        ),
        ("美国|0|0|0|谷歌", ["US", "美国", "", "", "谷歌"]),
        (
            "Australia|Queensland|Brisbane|0|AU",
            ["AU", "Australia", "Queensland", "Brisbane", ""],
        ),
        ("0|0|0|内网IP|内网IP", ["", "", "", "", ""]),
        ("Reserved|Reserved|Reserved|0|0", ["", "", "", "", ""]),
        ("", ["", "", "", "", ""]),
        ("x", ["", "x", "", "", ""]),
    ] {
        assert_eq!(texts(region), found, "{region}");
    }
    assert_eq!(
        parsed(b"\xff|\xff\0").country_name.as_deref(),
        Some("\u{fffd}")
    );
    let long = "x".repeat(1000);
    let name = parsed(long.as_bytes()).country_name.expect("a name");
    assert_eq!(name.len(), MAX_PLACE_TEXT);
}

#[test]
fn what_is_no_database_is_refused() {
    let refused = |bytes: &[u8]| Xdb::new(bytes.to_vec()).err().expect("no database");
    let good = written(3, &FOUR);
    assert_eq!(refused(b""), "it is too short");
    assert_eq!(refused(&good[..good.len() - 1]), "its end is missing");
    assert_eq!(refused(&good[..HEADER + INDEX]), "its end is missing");
    let mut other = good.clone();
    other[0] = 4;
    assert_eq!(refused(&other), "it is of an unknown version");
    let mut other = good;
    other[16] = 5;
    assert_eq!(refused(&other), "it is for no version of IP");
}

proptest! {
    #[test]
    fn a_damaged_database_says_something_or_nothing(
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..64),
        four in any::<u32>(),
        six in any::<u128>(),
    ) {
        for mut bytes in [
            written(3, &FOUR),
            written(3, &[("2001:db8::", "2001:db8:ffff::", "a|b|c|d|CN")]),
        ] {
            // Most of the file is the empty index; what matters stands before and behind it.
            let places = [
                0..20,
                HEADER..HEADER + 0x20000,
                HEADER + INDEX..bytes.len(),
            ];
            for (place, (index, value)) in damage.iter().enumerate() {
                let part = places[place % 3].clone();
                bytes[part.start + index.index(part.len())] = *value;
            }
            if let Ok(xdb) = Xdb::new(bytes) {
                for address in [four, 0x0100_0101, four & 0x0003_ffff | 0x0100_0000] {
                    let _ = xdb.place(Ipv4Addr::from_bits(address).into());
                }
                for address in [six, 0x2001_0db8 << 96] {
                    let _ = xdb.place(Ipv6Addr::from_bits(address).into());
                }
            }
        }
    }
}
