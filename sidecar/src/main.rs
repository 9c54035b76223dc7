//! The `shortlink` program.
#![forbid(unsafe_code)]

use std::process::ExitCode;

use snmalloc_rs::SnMalloc;

/// A batch allocates in one thread what it frees in another, which the C library pays for with locks. snmalloc soon hands
/// out again what was freed, while it is still in the processor's cache. mimalloc goes through all other free blocks of its
/// page first: with it, a single link takes a tenth more CPU time. jemalloc is as fast, but takes 40 seconds of a first
/// build (`bench/against`).
#[global_allocator]
static ALLOCATOR: SnMalloc = SnMalloc;

fn main() -> ExitCode {
    shortlink_sidecar::cli::main()
}
