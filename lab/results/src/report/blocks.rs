//! Choice of the blocks that a page shows one by one.

use super::recording::NameId;

/// The most blocks that a page lists. If there are more, those that are live at the peaks come first, then the largest.
pub(super) const MAX_BLOCKS: usize = 20_000;

/// An allocation from its first event to its last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Life {
    pub(super) from: u32,
    /// Event that freed it; `u32::MAX` if none did.
    pub(super) to: u32,
    pub(super) address: u64,
    pub(super) requested_bytes: u64,
    pub(super) bytes: u64,
    /// Its category when it was allocated, and at its end.
    pub(super) birth: u8,
    pub(super) now: u8,
    pub(super) op: NameId,
    pub(super) scope: NameId,
}

impl Life {
    fn at(&self, moment: u32) -> bool {
        self.from <= moment && moment < self.to
    }
}

/// A change of a block's category.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Retag {
    /// Index of the allocation; in [`Listed`], index of the listed block.
    pub(super) allocation: u32,
    pub(super) at: u32,
    pub(super) category: u8,
}

/// The blocks that are shown one by one.
#[derive(Debug, Default)]
pub(super) struct Listed {
    /// Blocks, in the order in which they were allocated.
    pub(super) lives: Vec<Life>,
    /// Changes of their categories, in order.
    pub(super) retags: Vec<Retag>,
    /// Number of blocks in the recording.
    pub(super) of: usize,
    /// Every block of at least this size is listed; 0 if every block is.
    pub(super) from_bytes: u64,
    /// True if all blocks that are live at the wanted moments are listed.
    pub(super) peaks_complete: bool,
}

/// Chooses the blocks that are live at the `wanted` moments (the first of which matters most), the largest of those that began before the event
/// `opened`, and the largest of all.
pub(super) fn select(lives: Vec<Life>, retags: Vec<Retag>, wanted: &[u32], opened: u32) -> Listed {
    let of = lives.len();
    if of <= MAX_BLOCKS {
        return Listed { lives, retags, of, from_bytes: 0, peaks_complete: true };
    }
    let mut chosen = vec![false; of];
    let mut left = MAX_BLOCKS;
    let mut peaks_complete = true;
    for (place, &moment) in wanted.iter().enumerate() {
        // The peak may take three quarters of the list; the share for the phases' peaks leaves room for the largest blocks.
        let share = if place == 0 { MAX_BLOCKS * 3 / 4 } else { left / 4 };
        let living = (0..of as u32).filter(|&i| lives[i as usize].at(moment) && !chosen[i as usize]).collect();
        let (taken, all) = largest(living, &lives, share.min(left));
        taken.iter().for_each(|&i| chosen[i as usize] = true);
        left -= taken.len();
        peaks_complete &= all;
    }
    for (before, share) in [(opened, left / 2), (u32::MAX, usize::MAX)] {
        let others = (0..of as u32).filter(|&i| !chosen[i as usize] && lives[i as usize].from < before).collect();
        let (taken, _) = largest(others, &lives, share.min(left));
        taken.iter().for_each(|&i| chosen[i as usize] = true);
        left -= taken.len();
    }
    let omitted = lives.iter().zip(&chosen).filter(|(_, chosen)| !**chosen);
    let from_bytes = omitted.map(|(life, _)| life.bytes).max().map_or(0, |bytes| bytes + 1);
    let mut number = vec![u32::MAX; of];
    let mut kept = Vec::with_capacity(MAX_BLOCKS);
    for (i, life) in lives.into_iter().enumerate().filter(|(i, _)| chosen[*i]) {
        number[i] = kept.len() as u32;
        kept.push(life);
    }
    let renumbered = |retag: Retag| Retag { allocation: number[retag.allocation as usize], ..retag };
    let retags = retags.into_iter().map(renumbered).filter(|retag| retag.allocation != u32::MAX).collect();
    Listed { lives: kept, retags, of, from_bytes, peaks_complete }
}

/// Returns the largest `most` blocks, and whether these are all.
fn largest(mut which: Vec<u32>, lives: &[Life], most: usize) -> (Vec<u32>, bool) {
    if which.len() <= most {
        return (which, true);
    }
    if most > 0 {
        which.select_nth_unstable_by_key(most - 1, |&i| std::cmp::Reverse(lives[i as usize].bytes));
    }
    which.truncate(most);
    (which, false)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn life(from: u32, to: u32, bytes: u64) -> Life {
        let name = NameId(0);
        Life { from, to, address: 0, requested_bytes: bytes, bytes, birth: 0, now: 0, op: name, scope: name }
    }

    #[test]
    fn what_lives_at_the_peak_is_listed_before_what_is_large() {
        let mut lives: Vec<Life> = (0..MAX_BLOCKS as u32 * 2).map(|i| life(i, i + 1, 1000 + u64::from(i))).collect();
        lives[5] = life(5, 10_000, 1);
        let retags = vec![
            Retag { allocation: 5, at: 6, category: 3 },
            Retag { allocation: 6, at: 6, category: 3 },
            Retag { allocation: 39_999, at: 40_000, category: 2 },
        ];
        let listed = select(lives, retags, &[9_999], 0);
        assert_eq!((listed.lives.len(), listed.of), (MAX_BLOCKS, 2 * MAX_BLOCKS));
        assert!(listed.peaks_complete);
        assert!(listed.lives.contains(&life(5, 10_000, 1)) && listed.lives.contains(&life(9_999, 10_000, 10_999)));
        // Two places went to the peak; the others are the largest blocks.
        assert_eq!(listed.from_bytes, 1000 + MAX_BLOCKS as u64 + 2);
        let renamed: Vec<u32> = listed.retags.iter().map(|retag| retag.allocation).collect();
        assert_eq!(renamed, [0, MAX_BLOCKS as u32 - 1]);
    }

    #[test]
    fn the_steps_that_a_page_opens_on_have_blocks() {
        let lives = (0..MAX_BLOCKS as u32 * 2).map(|i| life(i, i + 1, 1000 + u64::from(i))).collect();
        let listed = select(lives, Vec::new(), &[39_000], 500);
        assert_eq!(listed.lives.len(), MAX_BLOCKS);
        assert!(listed.lives[..500].iter().enumerate().all(|(i, life)| life.from == i as u32));
    }

    #[test]
    fn a_short_run_is_listed_whole() {
        let listed = select(vec![life(0, 3, 8), life(1, u32::MAX, 4)], Vec::new(), &[1], 0);
        assert_eq!((listed.lives.len(), listed.from_bytes, listed.peaks_complete), (2, 0, true));
    }
}
