//! What every client of Prometheus tells of its process, by the names that all of them use
//! (<https://prometheus.io/docs/instrumenting/writing_clientlibs/#process-metrics>).

use procfs::process::Process;
use procfs::{CurrentSI, KernelStats, ProcResult};

use super::text::Text;

/// Adds what the system says of this process. What it does not say is left out.
pub(super) fn add(text: &mut Text) {
    if let Err(error) = read(text) {
        tracing::debug!(
            error = &error as &dyn std::error::Error,
            "the system does not say everything of this process"
        );
    }
}

fn read(text: &mut Text) -> ProcResult<()> {
    let process = Process::myself()?;
    let stat = process.stat()?;
    let ticks = procfs::ticks_per_second() as f64;
    text.metric(
        "process_cpu_seconds_total",
        super::Kind::Counter,
        "Processor time that this process has used.",
    )
    .add(&[], (stat.utime + stat.stime) as f64 / ticks);
    text.gauge(
        "process_resident_memory_bytes",
        "Memory of this process that is not swapped out.",
        stat.rss * procfs::page_size(),
    );
    text.gauge(
        "process_virtual_memory_bytes",
        "Addresses that this process uses.",
        stat.vsize,
    );
    text.gauge(
        "process_threads",
        "Threads of this process.",
        stat.num_threads,
    );
    text.gauge(
        "process_open_fds",
        "Files and connections that this process has open.",
        process.fd_count()?,
    );
    if let procfs::process::LimitValue::Value(most) = process.limits()?.max_open_files.soft_limit {
        text.gauge(
            "process_max_fds",
            "How many files and connections it may have open.",
            most,
        );
    }
    text.gauge(
        "process_start_time_seconds",
        "When this process began, since 1970.",
        KernelStats::current()?.btime as f64 + stat.starttime as f64 / ticks,
    );
    Ok(())
}
