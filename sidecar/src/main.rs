//! The `shortlink` program.
#![forbid(unsafe_code)]

use std::process::ExitCode;

use clap::Parser;
use shortlink_sidecar::cli::Cli;

#[tokio::main]
async fn main() -> ExitCode {
    match Cli::parse().run().await {
        Ok(code) => code,
        Err(error) => {
            // One line, causes included, whatever they are made of.
            let message = format!("{error:#}");
            let lines: Vec<&str> = message.lines().map(str::trim).collect();
            eprintln!("shortlink: {}", lines.join(" "));
            ExitCode::FAILURE
        }
    }
}
