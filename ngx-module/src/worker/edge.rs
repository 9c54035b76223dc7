//! The edge of a worker, and its clock.

use resolver::{Edge, Now};

use crate::nginx::process;
use crate::nginx::request::Token;

/// The edge of a worker. A request that waits gives its token up before it is freed.
pub(crate) type WorkerEdge = Edge<Token>;

/// The time of this turn of the loop; its milliseconds never go back.
#[inline]
pub(crate) fn now() -> Now {
    Now {
        ms: process::milliseconds(),
        unix: process::seconds(),
    }
}
