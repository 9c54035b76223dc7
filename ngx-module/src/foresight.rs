//! Has the processor prefetch the cache entry of a request before the request is handled.
//!
//! A cache of many links does not fit the processor's own caches, so a look-up waits for memory
//! twice: for the place in the index, and then for the entry. Both waits together are longer than
//! everything else that a hit costs. So the index is asked for when the request was read, the
//! entry when nginx is about to have the answer made, and meanwhile nginx does what it has to do anyway. An entry that
//! is asked for earlier makes the processor wait for the index, which costs more than it saves.
//!
//! Nothing is decided here: a wrong guess costs a look-up nothing but the wait.

use resolver::vocabulary::Code;

use crate::nginx::process::prefetch;
use crate::nginx::request::Request;
use crate::nginx::status::Status;
use crate::settings::Settings;
use crate::worker;

/// Number of bytes that the processor fetches at once.
const LINE: usize = 64;

/// The phase after a request was read: fetches the place in the index. The server is known, and what it has for a
/// location is a guess.
pub(crate) fn on_post_read(request: &Request) -> Status {
    if let Some((b'/', rest)) = request.path().split_first()
        && let Ok(code) = Code::leading(rest)
        && let Some(conf) = request.location_settings::<Settings>()
    {
        worker::with(conf.redis, |backend| {
            if let Some(cache) = backend.edge.cache() {
                let hash = cache.hash(&code);
                prefetch(cache.search_address(hash));
                backend.foreseen = Some(hash);
            }
        });
    }
    Status::DECLINED
}

/// The last phase before the answer: fetches the entry.
pub(crate) fn on_precontent(request: &Request) -> Status {
    let Some(conf) = request.location_settings::<Settings>() else {
        return Status::DECLINED;
    };
    worker::with(conf.redis, |backend| {
        if let Some(hash) = backend.foreseen.take()
            && let Some(cache) = backend.edge.cache()
            && let Some(address) = cache.entry_address(hash)
        {
            // The fields of a link, and the beginning of its target; most targets end there.
            prefetch(address);
            prefetch(address + LINE);
        }
    });
    Status::DECLINED
}
