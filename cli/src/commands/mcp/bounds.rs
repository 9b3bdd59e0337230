//! Bounds of a call: its time, its memory, and the size of its answer.

use std::io;
use std::path::Path;
use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncRead, AsyncReadExt};

/// Time of a rehearsal, in times of another call: a script imports its libraries, and may run five times.
const REHEARSAL: u32 = 10;

/// Maximum memory of a call that runs no script. Bytes.
const MEMORY: u64 = 4 << 30;

/// Maximum bytes of an answer's text.
const MAX_TEXT: usize = 32 << 10;

/// Maximum bytes of an answer's JSON.
const MAX_JSON: u64 = 256 << 10;

/// Maximum bytes of a run's standard error that are passed on, from its end.
const MAX_SAID: usize = 4000;

/// Returns the time in which a call must end.
pub(super) fn time(seconds: u32, is_script: bool) -> Duration {
    let times = if is_script { REHEARSAL } else { 1 };
    Duration::from_secs(u64::from(seconds) * u64::from(times))
}

/// Returns the message about a call that took too long.
pub(super) fn too_long(time: Duration) -> String {
    format!(
        "stopped after {} seconds: ask for fewer steps, or for a smaller batch or sequence; `vramlab mcp --seconds N` allows more",
        time.as_secs()
    )
}

/// Bounds the memory of a process where the system can. Beyond it the process ends, and the server does not.
pub(super) fn limit_memory(id: Option<u32>) {
    #[cfg(target_os = "linux")]
    {
        use rustix::process::{Pid, Resource, Rlimit, prlimit};
        let limit = Rlimit { current: Some(MEMORY), maximum: Some(MEMORY) };
        if let Some(id) = id.and_then(|id| Pid::from_raw(i32::try_from(id).ok()?)) {
            // It may have ended meanwhile. Without the limit the answers are the same.
            let _ = prlimit(Some(id), Resource::As, limit);
        }
    }
    #[cfg(not(target_os = "linux"))]
    let _ = (id, MEMORY);
}

/// Reads all of a stream and keeps its beginning, cut at the end of a line, with a last line that says so.
pub(super) async fn beginning(mut stream: impl AsyncRead + Unpin) -> io::Result<String> {
    let (mut kept, mut bytes, mut part) = (Vec::new(), 0, [0; 8192]);
    loop {
        let read = stream.read(&mut part).await?;
        if read == 0 {
            break;
        }
        bytes += read;
        let room = MAX_TEXT - kept.len().min(MAX_TEXT);
        kept.extend_from_slice(&part[..read.min(room)]);
    }
    if bytes > kept.len() {
        kept.truncate(kept.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1));
        let left_out = bytes - kept.len();
        kept.extend_from_slice(
            format!("… {left_out} bytes more: ask for fewer rows, or run the command itself\n").as_bytes(),
        );
    }
    Ok(String::from_utf8_lossy(&kept).into_owned())
}

/// Reads all of a stream and keeps its end.
pub(super) async fn end(mut stream: impl AsyncRead + Unpin) -> io::Result<String> {
    let (mut kept, mut part) = (Vec::new(), [0; 8192]);
    loop {
        let read = stream.read(&mut part).await?;
        if read == 0 {
            break;
        }
        kept.extend_from_slice(&part[..read]);
        let beyond = kept.len().saturating_sub(MAX_SAID);
        kept.drain(..beyond);
    }
    Ok(String::from_utf8_lossy(&kept).trim().to_string())
}

/// Returns an answer's JSON, or a message if it is too large.
pub(super) fn json(file: &Path) -> (Option<Value>, Option<String>) {
    let Ok(bytes) = file.metadata().map(|data| data.len()) else { return (None, None) };
    if bytes > MAX_JSON {
        let told = format!(
            "The JSON of this answer has {bytes} bytes, more than {MAX_JSON}: the command itself writes it (--json FILE)."
        );
        return (None, Some(told));
    }
    (std::fs::read(file).ok().and_then(|json| serde_json::from_slice(&json).ok()), None)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run<T>(future: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(future)
    }

    #[test]
    fn a_long_text_is_cut_at_a_line() {
        let lines = "a line of twenty-two b\n".repeat(100_000);
        let kept = run(beginning(lines.as_bytes())).unwrap();
        assert!(kept.len() < MAX_TEXT + 200, "{}", kept.len());
        let (last, lines_kept) = (kept.lines().next_back().unwrap(), kept.lines().count() - 1);
        assert!(last.starts_with(&format!("… {} bytes more", lines.len() - lines_kept * 23)), "{last}");
        assert_eq!(run(beginning("short".as_bytes())).unwrap(), "short");
        let one = "x".repeat(MAX_TEXT + 1);
        assert!(run(beginning(one.as_bytes())).unwrap().starts_with("… 32769 bytes more"));
    }

    #[test]
    fn of_what_went_wrong_the_end_is_kept() {
        let said = format!("{}the reason\n", "noise ".repeat(10_000));
        let kept = run(end(said.as_bytes())).unwrap();
        assert!(kept.ends_with("the reason") && kept.len() <= MAX_SAID, "{}", kept.len());
    }

    #[test]
    fn a_rehearsal_has_more_time() {
        assert_eq!([time(30, false), time(30, true)].map(|time| time.as_secs()), [30, 300]);
    }
}
