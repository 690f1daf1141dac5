//! What the system says of this process; left out where it cannot be read.

use rustix::process::Resource;

use super::Exposition;

/// Writes the process metrics every Prometheus client has.
pub(super) fn write(out: &mut Exposition) {
    if let Ok(entries) = std::fs::read_dir("/proc/self/fd") {
        // The listing itself is one of them.
        let used = entries.count().saturating_sub(1);
        out.gauge("process_open_fds", used);
        out.gauge("os_fd_used", used);
    }
    if let Some(limit) = rustix::process::getrlimit(Resource::Nofile).current {
        out.gauge("process_max_fds", limit);
        out.gauge("os_fd_limit", limit);
    }
    let memory_max = rustix::process::getrlimit(Resource::As).current;
    let memory_max = memory_max.map_or_else(|| "-1".to_owned(), |limit| limit.to_string());
    out.gauge("process_virtual_memory_max_bytes", memory_max);
    if let Some((received, sent)) = network_bytes() {
        out.counter("process_network_receive_bytes_total", received);
        out.counter("process_network_transmit_bytes_total", sent);
    }
    if let Some(usage) = Usage::read() {
        out.family("process_cpu_seconds_total");
        out.sample("process_cpu_seconds_total", &[], usage.cpu_seconds);
        out.gauge("process_resident_memory_bytes", usage.resident_bytes);
        out.gauge("process_virtual_memory_bytes", usage.virtual_bytes);
        if let Some(start) = usage.start_seconds {
            out.gauge("process_start_time_seconds", start);
        }
    }
}

/// Bytes in and out over IP: a line of names, then a line of numbers.
fn network_bytes() -> Option<(u64, u64)> {
    let netstat = std::fs::read_to_string("/proc/self/net/netstat").ok()?;
    let mut lines = netstat
        .lines()
        .filter_map(|line| line.strip_prefix("IpExt: "));
    let (names, numbers) = (lines.next()?, lines.next()?);
    let number = |wanted: &str| {
        let mut pairs = names.split(' ').zip(numbers.split(' '));
        pairs.find(|(name, _)| *name == wanted)?.1.parse().ok()
    };
    Some((number("InOctets")?, number("OutOctets")?))
}

struct Usage {
    cpu_seconds: f64,
    resident_bytes: u64,
    virtual_bytes: u64,
    start_seconds: Option<f64>,
}

impl Usage {
    /// Reads `/proc/self/stat`: after the command's closing bracket come the fields, the state
    /// first.
    fn read() -> Option<Usage> {
        let stat = std::fs::read_to_string("/proc/self/stat").ok()?;
        let (_, fields) = stat.rsplit_once(')')?;
        let fields: Vec<&str> = fields.split_ascii_whitespace().collect();
        let field = |at: usize| fields.get(at)?.parse::<u32>().ok().map(f64::from);
        let large = |at: usize| fields.get(at)?.parse::<u64>().ok();
        let ticks = per_second(rustix::param::clock_ticks_per_second())?;
        let page = u64::try_from(rustix::param::page_size()).ok()?;
        let start_ticks = fields.get(19)?.parse::<f64>().ok()?;
        Some(Usage {
            cpu_seconds: (field(11)? + field(12)?) / ticks,
            virtual_bytes: large(20)?,
            resident_bytes: large(21)?.checked_mul(page)?,
            start_seconds: boot_seconds().map(|boot| boot + start_ticks / ticks),
        })
    }
}

fn per_second(ticks: u64) -> Option<f64> {
    u32::try_from(ticks)
        .ok()
        .filter(|ticks| *ticks > 0)
        .map(f64::from)
}

fn boot_seconds() -> Option<f64> {
    let stat = std::fs::read_to_string("/proc/stat").ok()?;
    let line = stat.lines().find_map(|line| line.strip_prefix("btime "))?;
    line.trim().parse().ok()
}
