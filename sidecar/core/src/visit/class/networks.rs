//! Networks of scanners and of servers: data, by the number of the autonomous system and by words in
//! the name of the provider.
//!
//! The numbers come from public data of routing and registries (Route Views, the NRO's statistics, DB-IP's
//! names of systems, of June 2026), by the names of well-known providers, and have been compared with public
//! lists of data centers. They are those with many addresses, because small ones have too little traffic
//! to be worth a line. Deliberately not among them:
//!
//! - networks that many recipients use: the relays of browsers (Cloudflare 13335, Akamai 36183 and Fastly 54113
//!   have the exits of iCloud Private Relay), VPNs (M247 9009, Datacamp 60068 and 212238), corporate proxies
//!   (Zscaler 22616, 53813 and 62044; Forcepoint 44444), and carriers that also host (GMO, Hurricane
//!   Electric, Cogent);
//! - networks of companies that also host, for their own staff or their telephones (Google Fiber 16591).
//!
//! Databases without numbers have only names, so both are needed. For servers, a listed number decides before the
//! name.

/// A network by its number: the reason for which it is a scanner's, or `None` if it is one of servers.
type Numbered = (u32, Option<&'static str>);

/// The networks, in the order of their numbers.
pub(super) const NUMBERS: &[Numbered] = &[
    (6724, None),   // Strato
    (7203, None),   // Leaseweb
    (7684, None),   // SAKURA
    (7979, None),   // Servers.com
    (8075, None),   // Microsoft
    (8100, None),   // QuadraNet
    (8560, None),   // IONOS
    (8987, None),   // Amazon
    (9123, None),   // Timeweb
    (9370, None),   // SAKURA
    (9371, None),   // SAKURA
    (12_876, None), // Scaleway
    (13_916, Some("proofpoint")),
    (14_061, None), // DigitalOcean
    (14_618, None), // Amazon
    (15_169, None), // Google
    (15_324, Some("barracuda")),
    (15_395, None), // Rackspace
    (16_276, None), // OVH
    (16_417, Some("cisco")),
    (16_509, None), // Amazon
    (17_330, Some("trellix")),
    (19_148, None), // Leaseweb
    (19_318, None), // InterServer
    (19_994, None), // Rackspace
    (20_473, None), // Vultr
    (22_168, Some("shadowserver")),
    (22_843, Some("proofpoint")),
    (23_576, None), // NAVER Cloud
    (24_940, None), // Hetzner
    (26_211, Some("proofpoint")),
    (26_347, None), // DreamHost
    (26_496, None), // GoDaddy
    (27_357, None), // Rackspace
    (27_411, None), // Leaseweb
    (28_753, None), // Leaseweb
    (29_802, None), // Hivelocity
    (30_031, Some("mimecast")),
    (30_215, Some("cisco")),
    (30_238, Some("cisco")),
    (30_633, None), // Leaseweb
    (31_034, None), // Aruba
    (31_898, None), // Oracle Cloud
    (32_244, None), // Liquid Web
    (32_613, None), // Leaseweb
    (33_070, None), // Rackspace
    (33_538, Some("mimecast")),
    (35_540, None), // OVH
    (36_007, None), // Kamatera
    (36_351, None), // IBM Cloud
    (36_352, None), // ColoCrossing
    (37_235, Some("mimecast")),
    (37_963, None), // Alibaba Cloud
    (38_365, None), // Baidu
    (39_588, Some("mimecast")),
    (40_021, None), // Contabo
    (40_427, Some("cisco")),
    (40_676, None), // Psychz
    (42_427, Some("mimecast")),
    (45_090, None), // Tencent Cloud
    (45_102, None), // Alibaba Cloud
    (45_974, None), // NHN Cloud
    (46_484, Some("trellix")),
    (46_606, None), // Unified Layer
    (47_583, None), // Hostinger
    (49_505, None), // Selectel
    (49_981, None), // WorldStream
    (50_340, None), // Selectel
    (51_167, None), // Contabo
    (52_129, Some("proofpoint")),
    (53_667, None), // FranTech
    (54_265, None), // Scaleway
    (54_290, None), // Hostwinds
    (54_825, None), // Equinix Metal
    (55_293, None), // A2 Hosting
    (55_967, None), // Baidu
    (55_990, None), // Huawei Cloud
    (59_019, None), // Kingsoft Cloud
    (59_077, None), // UCloud
    (59_253, None), // Leaseweb
    (60_492, Some("mimecast")),
    (60_781, None),  // Leaseweb
    (61_157, None),  // PlusServer
    (63_949, None),  // Linode
    (64_022, None),  // Kamatera
    (132_203, None), // Tencent Cloud
    (133_478, None), // Tencent Cloud
    (133_752, None), // Leaseweb
    (134_963, None), // Alibaba Cloud
    (135_377, None), // UCloud
    (136_792, Some("mimecast")),
    (136_907, None), // Huawei Cloud
    (137_718, None), // Volcano Engine
    (141_995, None), // Contabo
    (197_540, None), // netcup
    (198_610, None), // Beget
    (199_524, None), // Gcore
    (200_350, None), // Yandex Cloud
    (202_053, None), // UpCloud
    (202_422, None), // Gcore
    (205_544, None), // Leaseweb
    (208_638, Some("mimecast")),
    (210_329, None), // Kamatera
    (211_298, Some("internet-measurement")),
    (212_317, None), // Hetzner
    (213_230, None), // Hetzner
    (213_412, Some("onyphe")),
    (215_859, None), // Hetzner
    (394_380, None), // Leaseweb
    (395_954, None), // Leaseweb
    (396_190, None), // Leaseweb
    (396_362, None), // Leaseweb
    (396_982, None), // Google
    (397_726, Some("mimecast")),
    (398_101, None), // GoDaddy
    (398_324, Some("censys")),
    (398_705, Some("censys")),
    (398_722, Some("censys")),
    (401_943, Some("hornetsecurity")),
];

/// Scanners that pretend to be a browser, by words in the names of their networks.
const SCANNERS: &[(&str, &str)] = &[
    ("proofpoint", "proofpoint"),
    ("mimecast", "mimecast"),
    ("barracuda", "barracuda"),
    ("ironport", "cisco"),
    ("fireeye", "trellix"),
    ("trellix", "trellix"),
    ("vade secure", "vade"),
    ("hornetsecurity", "hornetsecurity"),
];

/// Words in the names of networks of servers, in lower case. Recipients may use some of them
/// through a tunnel, so a network by itself proves nothing.
const HOSTING: &[&str] = &[
    "amazon",
    "microsoft",
    "google",
    "digitalocean",
    "ovh",
    "hetzner",
    "linode",
    "vultr",
    "choopa",
    "constant company",
    "contabo",
    "leaseweb",
    "scaleway",
    "ionos",
    "oracle",
    "alibaba",
    "aliyun",
    "阿里云",
    "tencent",
    "腾讯云",
    "huawei cloud",
    "huawei-cloud",
    "华为云",
    "ucloud",
    "rackspace",
    "softlayer",
    "colocrossing",
    "hosting",
    "hoster",
    "datacenter",
    "data center",
    "dedicated server",
    "colocation",
];

/// Words in the names of networks that have one of [`HOSTING`] and recipients.
const NOT_HOSTING: &[&str] = &["google fiber", "google-fiber", "fiberhost"];

/// A client's network, as far as a database of places knows it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Network<'a> {
    /// Name of the provider of the client's Internet access.
    pub name: Option<&'a str>,
    /// Number of the autonomous system.
    pub asn: Option<u32>,
}

impl Network<'_> {
    /// The scanner that the network belongs to.
    pub fn scanner(self) -> Option<&'static str> {
        // Scanners rent servers, and some databases name them as their users.
        self.numbered().and_then(|(_, reason)| reason).or_else(|| {
            let name = self.name?.to_ascii_lowercase();
            let found = SCANNERS.iter().find(|(word, _)| name.contains(word));
            found.map(|(_, reason)| *reason)
        })
    }

    /// Reports whether the network is one of servers and not of recipients.
    pub fn is_hosting(self) -> bool {
        if let Some((_, scanner)) = self.numbered() {
            return scanner.is_none();
        }
        self.name.is_some_and(|name| {
            let name = name.to_lowercase();
            let has = |words: &[&str]| words.iter().any(|word| name.contains(word));
            has(HOSTING) && !has(NOT_HOSTING)
        })
    }

    fn numbered(self) -> Option<Numbered> {
        let asn = self.asn?;
        let place = NUMBERS.binary_search_by_key(&asn, |(number, _)| *number);
        place.ok().map(|place| NUMBERS[place])
    }
}

/// The data, for the version of the rules.
#[cfg(test)]
pub(super) fn all() -> impl std::fmt::Debug {
    (NUMBERS, SCANNERS, HOSTING, NOT_HOSTING)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_in_their_order_and_reasons_are_stable() {
        assert!(NUMBERS.is_sorted_by(|(one, _), (next, _)| one < next));
        let reasons = NUMBERS.iter().filter_map(|(_, reason)| *reason);
        let reasons = reasons.chain(SCANNERS.iter().map(|(_, reason)| *reason));
        for reason in reasons {
            let is_stable = |byte: u8| byte.is_ascii_lowercase() || byte == b'-';
            assert!(reason.bytes().all(is_stable), "{reason}");
        }
        for (word, _) in SCANNERS {
            assert_eq!(word.to_ascii_lowercase(), *word);
        }
    }

    #[test]
    fn names_decide_where_the_number_does_not() {
        for (name, expected) in [
            ("AMAZON-02", true),
            ("MICROSOFT-CORP-MSN-AS-BLOCK", true),
            ("GOOGLE-CLOUD-PLATFORM", true),
            ("Hetzner Online GmbH", true),
            ("阿里云", true),
            ("GOOGLE-FIBER", false),
            ("CLOUDFLARENET", false),
            ("AKAMAI-AS", false),
            ("Deutsche Telekom AG", false),
            ("T-MOBILE-AS21928", false),
        ] {
            for asn in [None, Some(64_496)] {
                let name = Some(name);
                let network = Network { name, asn };
                assert_eq!(network.is_hosting(), expected, "{network:?}");
                assert_eq!(network.scanner(), None);
            }
        }
    }

    #[test]
    fn numbers_decide_whatever_the_name() {
        let of = |asn| Network {
            name: Some("Example Telecom"),
            asn: Some(asn),
        };
        for asn in [16_509, 15_169, 8_075, 24_940, 45_102, 132_203, 396_982] {
            assert!(of(asn).is_hosting(), "{asn}");
            assert_eq!(of(asn).scanner(), None);
        }
        for (asn, reason) in [
            (22_843, "proofpoint"),
            (30_031, "mimecast"),
            (15_324, "barracuda"),
        ] {
            assert!(!of(asn).is_hosting(), "{asn}");
            assert_eq!(of(asn).scanner(), Some(reason));
        }
        // Relays of browsers, VPNs, corporate proxies.
        for asn in [13_335, 36_183, 54_113, 9_009, 212_238, 22_616, 44_444] {
            assert!(!of(asn).is_hosting(), "{asn}");
            assert_eq!(of(asn).scanner(), None);
        }
    }
}
