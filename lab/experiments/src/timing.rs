//! Times of programs that take turns. Other load on the machine slows all of them alike, and shows as spread.

use lab_base::figures::median;

use super::Measurement;

/// Number of rounds in which each program is timed.
pub(super) const ROUNDS: usize = 5;

/// Order of `programs` programs in a round. Each round begins with another program, because the first one after a pause is
/// slower.
pub(super) fn turns(round: usize, programs: usize) -> impl Iterator<Item = usize> {
    (0..programs).map(move |i| (i + round) % programs.max(1))
}

/// Duration of a program in each round, in microseconds. Empty on a device that computes nothing.
#[derive(Clone, Debug, Default)]
pub(super) struct Times(Vec<f64>);

impl Times {
    pub(super) fn push(&mut self, us: f64) {
        self.0.push(us);
    }

    /// Median of the rounds.
    pub(super) fn median(&self) -> Option<f64> {
        median(&self.0)
    }

    /// Writes the median, the fastest and the slowest round: `1.25 ms (1.1 to 1.4)`. A dash without a round.
    pub(super) fn words(&self) -> String {
        let ms = |us: f64| format!("{:.3}", us / 1e3);
        match (self.median(), range(&self.0)) {
            (Some(middle), Some((least, most))) => format!("{} ms ({} to {})", ms(middle), ms(least), ms(most)),
            _ => "-".into(),
        }
    }

    /// Adds the times as `step_us`, `least_step_us` and `most_step_us`. Unknown without a round.
    pub(super) fn measure(&self, m: &mut Measurement, quantity: &str) {
        let (names, range) = ([format!("least_{quantity}"), format!("most_{quantity}")], range(&self.0));
        match (self.median(), range) {
            (Some(middle), Some((least, most))) => {
                m.measure(quantity, whole(middle));
                m.measure(&names[0], whole(least));
                m.measure(&names[1], whole(most));
            }
            _ => m.unknown(quantity),
        }
    }

    /// States how much longer than `plain` the program took, round by round. A difference whose sign is not the same in every round cannot
    /// be measured here.
    pub(super) fn beside(&self, plain: &Self) -> String {
        let more: Vec<f64> =
            self.0.iter().zip(&plain.0).map(|(us, plain)| 100.0 * (us / plain.max(1.0) - 1.0)).collect();
        let (Some(middle), Some((least, most))) = (median(&more), range(&more)) else {
            return "time not known without values".into();
        };
        let seen = format!("{middle:+.0} % in the middle of {} rounds, {least:+.0} to {most:+.0} %", more.len());
        match least > 0.0 || most < 0.0 {
            true => format!("time {seen}"),
            false => format!("time not measurable here ({seen})"),
        }
    }
}

fn whole(us: f64) -> u64 {
    us.max(1.0).round() as u64
}

fn range(values: &[f64]) -> Option<(f64, f64)> {
    let least = values.iter().copied().reduce(f64::min)?;
    Some((least, values.iter().copied().reduce(f64::max)?))
}
