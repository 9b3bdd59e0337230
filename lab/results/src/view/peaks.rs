//! Peaks of a curve that stand out.

/// A peak rises by this part of the highest value, and falls by as much (or the recording ends).
const STANDS_OUT: u64 = 10;

/// Returns the events of the peaks, in order: the first event with the highest value between a rise and a fall that are large enough. The highest of
/// all is among them.
pub(super) fn peaks(values: &[u64]) -> Vec<u32> {
    let highest = values.iter().copied().max().unwrap_or(0);
    let enough = (highest / STANDS_OUT).max(1);
    let mut peaks = Vec::new();
    // The lowest since the last peak; once the curve has risen enough, the highest since then.
    let (mut lowest, mut top) = (0, None::<(u32, u64)>);
    for (at, &value) in values.iter().enumerate() {
        match &mut top {
            Some((_, most)) if value > *most => top = Some((at as u32, value)),
            Some((event, most)) if *most - value >= enough => {
                peaks.push(*event);
                (lowest, top) = (value, None);
            }
            Some(_) => {}
            None if value - value.min(lowest) >= enough => top = Some((at as u32, value)),
            None => lowest = lowest.min(value),
        }
    }
    peaks.extend(top.map(|(event, _)| event));
    peaks
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peaks_stand_out_on_both_sides() {
        assert_eq!(peaks(&[0, 50, 100, 95, 100, 20, 60, 55, 5, 9, 4, 80]), [2, 6, 11]);
        assert_eq!(peaks(&[7, 7, 7]), [0]);
        assert!(peaks(&[0, 0]).is_empty());
        assert!(peaks(&[]).is_empty());
    }

    #[test]
    fn the_highest_is_always_among_them() {
        for seed in 1..200u64 {
            let values: Vec<u64> = (0..50u64).map(|i| (i * seed * 7919 + seed) % 1009).collect();
            let highest = values.iter().copied().max().unwrap();
            let at = values.iter().position(|&value| value == highest).unwrap() as u32;
            assert!(peaks(&values).contains(&at), "{seed}: {values:?}");
        }
    }
}
