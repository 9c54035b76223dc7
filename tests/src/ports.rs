//! Ports that are free.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::net::TcpListener;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU16, Ordering};

/// Below the range that systems take the ports of outgoing connections from: a server that is
/// killed finds its port free when it is started again.
const FIRST: u16 = 10_240;
const LAST: u16 = 19_999;

/// The next port to try. It begins anywhere, so that two runs of the tests meet seldom.
static NEXT: LazyLock<AtomicU16> = LazyLock::new(|| {
    let spread = RandomState::new().hash_one(0u8) % u64::from(LAST - FIRST);
    AtomicU16::new(spread as u16)
});

/// A free port of loopback that no other test of this process was given.
///
/// # Panics
/// When there is none.
pub fn free() -> u16 {
    for _ in FIRST..LAST {
        let port = FIRST + NEXT.fetch_add(1, Ordering::Relaxed) % (LAST - FIRST);
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
    panic!("there is no free port");
}
