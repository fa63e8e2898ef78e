//! What Prometheus' dashboards expect of every process: `process_cpu_seconds_total` and others, as the kernel has them when the page is read.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Registry, Unit};
use rustix::param::{clock_ticks_per_second, page_size};
use rustix::process::{Resource, getrlimit};

/// Those metrics. A value that the kernel does not say stays as it was.
#[derive(Debug, Default)]
pub(crate) struct ProcessMetrics {
    cpu: Counter<f64, AtomicU64>,
    resident: Gauge,
    virtual_memory: Gauge,
    open_fds: Gauge,
    max_fds: Gauge,
    threads: Gauge,
}

impl ProcessMetrics {
    pub(crate) fn new(registry: &mut Registry) -> ProcessMetrics {
        let metrics = ProcessMetrics::default();
        let own = registry.sub_registry_with_prefix("process");
        own.register_with_unit("cpu", "Processor time of this process", Unit::Seconds, metrics.cpu.clone());
        own.register_with_unit("resident_memory", "Its memory in RAM", Unit::Bytes, metrics.resident.clone());
        own.register_with_unit(
            "virtual_memory",
            "Its address space",
            Unit::Bytes,
            metrics.virtual_memory.clone(),
        );
        own.register("open_fds", "Its open file descriptors", metrics.open_fds.clone());
        own.register("max_fds", "File descriptors that it may have", metrics.max_fds.clone());
        own.register("threads", "Its threads", metrics.threads.clone());
        let start = Gauge::<f64, AtomicU64>::default();
        start.set(start_seconds().unwrap_or(0.0));
        own.register_with_unit("start_time", "When it started, since 1970", Unit::Seconds, start);
        metrics
    }

    /// Reads the values anew.
    pub(crate) fn look(&self) {
        if let Some(stat) = Stat::read() {
            // Never falls, as the kernel's count never does.
            self.cpu.inner().store(stat.cpu_seconds.to_bits(), Ordering::Relaxed);
            self.resident.set(stat.resident_bytes);
            self.virtual_memory.set(stat.virtual_bytes);
            self.threads.set(stat.threads);
        }
        if let Ok(entries) = std::fs::read_dir("/proc/self/fd") {
            // One is the directory's.
            self.open_fds.set(entries.count() as i64 - 1);
        }
        if let Some(most) = getrlimit(Resource::Nofile).current {
            self.max_fds.set(i64::try_from(most).unwrap_or(i64::MAX));
        }
    }
}

/// A part of `/proc/self/stat`.
struct Stat {
    cpu_seconds: f64,
    threads: i64,
    /// Since the system has started.
    started_seconds: f64,
    virtual_bytes: i64,
    resident_bytes: i64,
}

impl Stat {
    fn read() -> Option<Stat> {
        Stat::parse(&std::fs::read_to_string("/proc/self/stat").ok()?)
    }

    fn parse(text: &str) -> Option<Stat> {
        // The name may have spaces and parentheses.
        let (_, rest) = text.rsplit_once(')')?;
        let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
        // proc(5) counts from 1, and the third is the first here.
        let number = |nth: usize| fields.get(nth - 3)?.parse::<i64>().ok();
        let seconds = |nth| Some(number(nth)? as f64 / clock_ticks_per_second() as f64);
        Some(Stat {
            cpu_seconds: seconds(14)? + seconds(15)?,
            threads: number(20)?,
            started_seconds: seconds(22)?,
            virtual_bytes: number(23)?,
            resident_bytes: number(24)?.saturating_mul(page_size() as i64),
        })
    }
}

fn start_seconds() -> Option<f64> {
    let uptime = std::fs::read_to_string("/proc/uptime").ok()?;
    let uptime: f64 = uptime.split_ascii_whitespace().next()?.parse().ok()?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).ok()?.as_secs_f64();
    Some(now - uptime + Stat::read()?.started_seconds)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_s_line_is_read_whatever_the_name() {
        let line = "42 (a) b (c) S 1 42 42 0 -1 4194560 100 0 0 0 250 50 0 0 20 0 7 0 1000 4096000 10 18446744073709551615 1";
        let stat = Stat::parse(line).unwrap();
        let ticks = clock_ticks_per_second() as f64;
        assert_eq!(
            (stat.cpu_seconds, stat.threads, stat.started_seconds),
            (300.0 / ticks, 7, 1000.0 / ticks)
        );
        assert_eq!((stat.virtual_bytes, stat.resident_bytes), (4_096_000, 10 * page_size() as i64));
        assert!(Stat::parse("42 (a").is_none() && Stat::parse("42 (a) S 1").is_none());
    }

    #[test]
    fn a_process_knows_itself() {
        let mut registry = Registry::default();
        let metrics = ProcessMetrics::new(&mut registry);
        metrics.look();
        assert!(
            metrics.threads.get() >= 1 && metrics.open_fds.get() >= 3 && metrics.resident.get() > 1 << 20
        );
        let age =
            SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs_f64() - start_seconds().unwrap();
        assert!((-5.0..86_400.0).contains(&age), "{age}");
    }
}
