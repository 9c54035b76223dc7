//! The standard metrics of a process, by their common names
//! (<https://prometheus.io/docs/instrumenting/writing_clientlibs/#process-metrics>).

use procfs::process::{LimitValue, Process};
use procfs::{CurrentSI, KernelStats, ProcResult};

use super::text::{Text, metrics};

/// Adds the metrics of this process. Omits those that the system does not report.
pub(super) fn add(text: &mut Text) {
    if let Err(error) = read(text) {
        tracing::debug!(
            error = &error as &dyn std::error::Error,
            "the system does not report all figures of this process"
        );
    }
}

fn read(text: &mut Text) -> ProcResult<()> {
    let process = Process::myself()?;
    let stat = process.stat()?;
    let ticks = procfs::ticks_per_second() as f64;
    metrics! { text;
        counter "process_cpu_seconds_total", "CPU time used by this process, in seconds."
            = (stat.utime + stat.stime) as f64 / ticks;
        gauge "process_resident_memory_bytes", "Resident memory of this process, in bytes."
            = stat.rss * procfs::page_size();
        gauge "process_virtual_memory_bytes", "Virtual memory of this process, in bytes." = stat.vsize;
        gauge "process_threads", "Threads of this process." = stat.num_threads;
        gauge "process_open_fds", "Open file descriptors of this process." = process.fd_count()?;
    }
    if let LimitValue::Value(most) = process.limits()?.max_open_files.soft_limit {
        metrics! { text;
            gauge "process_max_fds", "Maximum number of open file descriptors of this process." = most;
        }
    }
    metrics! { text;
        gauge "process_start_time_seconds", "Start time of this process, in seconds since 1970."
            = KernelStats::current()?.btime as f64 + stat.starttime as f64 / ticks;
    }
    Ok(())
}
