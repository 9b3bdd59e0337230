//! Memory of the machine, as the operating system reports it.

use memcore::backend::MemoryInfo;

/// Returns free and total memory: of the machine, or of this process's control group if that is less. `None` if the system has no `/proc`.
pub(crate) fn memory_info() -> Option<MemoryInfo> {
    let meminfo = std::fs::read_to_string("/proc/meminfo").ok()?;
    let machine = MemoryInfo { free_bytes: kib(&meminfo, "MemAvailable:")?, total_bytes: kib(&meminfo, "MemTotal:")? };
    let Some(group) = control_group() else {
        return Some(machine);
    };
    Some(MemoryInfo {
        free_bytes: machine.free_bytes.min(group.free_bytes),
        total_bytes: machine.total_bytes.min(group.total_bytes),
    })
}

/// Returns the bytes of this process that are resident in memory now.
pub(crate) fn resident_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    kib(&status, "VmRSS:")
}

/// Reads the number in a line such as `MemTotal: 24684096 kB`, in bytes.
fn kib(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next()?.parse::<u64>().ok()?.checked_mul(1024)
}

/// Returns the limit of the control group (version 2) in which this process runs; `None` without one.
fn control_group() -> Option<MemoryInfo> {
    let groups = std::fs::read_to_string("/proc/self/cgroup").ok()?;
    let path = groups.lines().find_map(|line| line.strip_prefix("0::"))?;
    let read = |file: &str| -> Option<u64> {
        std::fs::read_to_string(format!("/sys/fs/cgroup{path}/{file}")).ok()?.trim().parse().ok()
    };
    // "max" does not parse, and means no limit.
    let total_bytes = read("memory.max")?;
    Some(MemoryInfo { free_bytes: total_bytes.saturating_sub(read("memory.current")?), total_bytes })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read_in_kib() {
        let text = "MemTotal:       24684096 kB\nMemFree:        24370652 kB\n";
        assert_eq!(kib(text, "MemTotal:"), Some(24684096 * 1024));
        assert_eq!(kib(text, "MemAvailable:"), None);
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn free_is_below_total() {
        let info = memory_info().unwrap();
        assert!(info.free_bytes > 0 && info.free_bytes <= info.total_bytes);
        assert!(resident_bytes().unwrap() > 0);
    }
}
