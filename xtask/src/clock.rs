//! What each step took: on the clock, and of the processor.

use std::time::{Duration, Instant};

/// The steps until now, with what they took.
#[derive(Default)]
pub(crate) struct Clock {
    steps: Vec<Taken>,
}

struct Taken {
    step: String,
    wall: Duration,
    /// Seconds of all cores; not known on every system.
    processor: Option<f64>,
}

impl Clock {
    /// Does a step, and says what it took.
    ///
    /// # Errors
    /// Those of the step.
    pub(crate) fn step<T>(&mut self, step: &str, work: impl FnOnce() -> anyhow::Result<T>) -> anyhow::Result<T> {
        let (start, before) = (Instant::now(), of_children());
        let done = work()?;
        let processor = of_children().zip(before).map(|(after, before)| after - before);
        let taken = Taken { step: step.into(), wall: start.elapsed(), processor };
        println!("==> {}", taken.line());
        self.steps.push(taken);
        Ok(done)
    }

    /// A line for each step.
    pub(crate) fn table(&self) -> String {
        self.steps.iter().map(|taken| format!("==> took {}\n", taken.line())).collect()
    }
}

impl Taken {
    fn line(&self) -> String {
        let wall = format!("{}: {:.0} s", self.step, self.wall.as_secs_f64());
        self.processor.map_or(wall.clone(), |seconds| format!("{wall}, {seconds:.0} s of the processor"))
    }
}

/// Seconds of the processor that ended children of this process took, with all their children, where the system says so.
fn of_children() -> Option<f64> {
    in_stat(&std::fs::read_to_string("/proc/self/stat").ok()?)
}

/// The same from Linux's `/proc/PID/stat` (`man proc`): after the name in parentheses, fields 3 and on, of which 16 and 17 count ticks.
fn in_stat(stat: &str) -> Option<f64> {
    const TICKS_PER_SECOND: f64 = 100.0;
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace().skip(16 - 3);
    let ticks: [f64; 2] = [fields.next()?.parse().ok()?, fields.next()?.parse().ok()?];
    Some(ticks.iter().sum::<f64>() / TICKS_PER_SECOND)
}

#[cfg(test)]
mod tests {
    use super::{Clock, in_stat};

    #[test]
    fn the_processor_of_children_is_read() {
        let stat = "7 (a ) b) S 1 7 7 0 -1 4194560 100 200 0 0 11 12 250 150 20 0 1 0 1234 1000 100";
        assert_eq!(in_stat(stat), Some(4.0));
        assert_eq!(in_stat("7 (a) S 1"), None);
    }

    #[test]
    fn a_step_that_fails_is_not_in_the_table() {
        let mut clock = Clock::default();
        assert_eq!(clock.step("one", || Ok(7)).unwrap(), 7);
        assert!(clock.step("two", || -> anyhow::Result<()> { anyhow::bail!("no") }).is_err());
        assert!(clock.table().starts_with("==> took one: 0 s") && !clock.table().contains("two"), "{}", clock.table());
    }
}
