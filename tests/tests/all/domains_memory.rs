//! The cost of reloads in nginx' master, which lives through all of them.

use std::fs;

use shortlink_tests::site::{Site, SiteOptions};
use shortlink_tests::wait::{SOON, until};

use crate::domains_swaps::swaps;

/// Number of names of a table: so many that one that is not given back shows.
const NAMES: usize = 3000;

/// After so many reloads the allocator of the master has what it needs.
const WARM: usize = 6;

/// The most that the master's own memory may grow in all, in kilobytes: a few tables, of which
/// each reload makes one.
const GROWTH: u64 = 1024;

/// The memory and the descriptors of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Holdings {
    /// Memory of its own that is in use, in kilobytes.
    own_kb: u64,
    /// Memory that it shares with its workers, mapped, in kilobytes.
    shared_kb: u64,
    descriptors: usize,
}

impl Holdings {
    fn of(process: u32) -> Self {
        let read = |name: &str| {
            let text = fs::read_to_string(format!("/proc/{process}/{name}"));
            text.expect("a running process")
        };
        let status = read("status");
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix("RssAnon:"));
        let own_kb = line.and_then(|line| line.trim().strip_suffix(" kB"));
        let shared = read("maps");
        let shared_kb = shared.lines().filter_map(|line| {
            let mut words = line.split_whitespace();
            let (begin, end) = words.next()?.split_once('-')?;
            let is_shared = words.next()?.ends_with('s');
            let address = |text| u64::from_str_radix(text, 16).expect("an address");
            is_shared.then(|| (address(end) - address(begin)) / 1024)
        });
        let descriptors = fs::read_dir(format!("/proc/{process}/fd"));
        Self {
            own_kb: own_kb.expect("its memory").parse().expect("a number"),
            shared_kb: shared_kb.sum(),
            descriptors: descriptors.expect("a running process").count(),
        }
    }
}

/// A table of many names, others for each number.
fn table(number: usize) -> String {
    let names = (0..NAMES).map(|name| {
        let state = match name {
            0 => "active",
            name if name % 3 == 0 => "retired",
            _ => "serving",
        };
        format!("    n{name}-{number}.example.net {state};\n")
    });
    format!("shortlink_domains {{\n{}}}\n", names.collect::<String>())
}

#[test]
fn reloads_leave_the_master_as_large_as_it_was() {
    let site = Site::with(&SiteOptions {
        server: "location / { shortlink; }
                 location = /metrics { shortlink_status; }
                 location = /domain { return 200 $shortlink_active_base; }",
        visits: "on",
        cache: "1m",
        workers: 2,
        ..SiteOptions::default()
    });
    let reload = |number: usize| {
        fs::write(site.nginx.file("domains.conf"), table(number)).expect("domains.conf");
        site.nginx.reload();
        let body = site.get("/domain").body;
        let expected = format!("https://n0-{number}.example.net");
        assert_eq!(String::from_utf8_lossy(&body), expected);
    };
    let of_master = || Holdings::of(site.nginx.master());
    let reloads = swaps();
    (0..WARM).for_each(reload);
    let before = of_master();
    (WARM..WARM + reloads).for_each(reload);
    // The master closes its channels to new workers a moment later.
    until("the master holds no more than before", SOON, || {
        of_master().descriptors <= before.descriptors
    });
    let after = of_master();
    println!("{reloads} reloads: {before:?}, then {after:?}");
    assert_eq!(after.shared_kb, before.shared_kb);
    assert!(
        after.own_kb <= before.own_kb + GROWTH,
        "{before:?}, then {after:?}"
    );
    // The slots of workers that are gone are used again.
    let metrics = site.get("/metrics").body;
    assert!(String::from_utf8_lossy(&metrics).contains("\nshortlink_workers 2\n"));
    assert_eq!(site.nginx.complaints(&[]), [""; 0]);
}
