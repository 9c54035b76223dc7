//! The `shortlink` program.
#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    shortlink_sidecar::cli::main()
}
