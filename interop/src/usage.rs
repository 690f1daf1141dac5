//! What the kernel says a process used.

use std::path::Path;

use anyhow::{Context as _, Result};

/// Processor time of a process so far, user and system, in seconds.
///
/// # Errors
/// When the process has ended.
pub fn cpu_s(process_id: u32) -> Result<f64> {
    let text = std::fs::read_to_string(format!("/proc/{process_id}/stat"))?;
    // The second field is the program's name in brackets, and may hold anything.
    let (_, fields) = text.rsplit_once(')').context("no name in stat")?;
    let mut fields = fields.split_whitespace().skip(11);
    let mut ticks = || -> Result<f64> { Ok(fields.next().context("short stat")?.parse()?) };
    let used = ticks()? + ticks()?;
    let ticks_per_s = f64::from(u32::try_from(rustix::param::clock_ticks_per_second())?);
    Ok(used / ticks_per_s)
}

/// A size of `/proc/<id>/status` in MiB: `VmRSS` is resident now, `VmHWM` the peak.
///
/// # Errors
/// When the process has ended, or for a field that is none.
pub fn memory_mib(process_id: u32, field: &str) -> Result<f64> {
    let text = std::fs::read_to_string(format!("/proc/{process_id}/status"))?;
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
    let kib = line
        .and_then(|line| line.split_whitespace().next())
        .context("no such field")?;
    Ok(kib.parse::<f64>()? / 1024.0)
}

/// Bytes that the files below `folder` take on disk, in MiB.
///
/// # Errors
/// When the folder cannot be read.
pub fn disk_mib(folder: &Path) -> Result<f64> {
    use std::os::unix::fs::MetadataExt as _;
    let mut total = 0.0;
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        let meta = entry.metadata()?;
        if meta.is_dir() {
            total += disk_mib(&entry.path())?;
        } else {
            // Blocks of 512 bytes.
            total += f64::from(u32::try_from(meta.blocks())?) / 2048.0;
        }
    }
    Ok(total)
}
