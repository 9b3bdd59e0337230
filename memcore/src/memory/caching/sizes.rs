//! Sizes of blocks and segments.

const MIB: u64 = 1 << 20;
/// Block sizes are multiples of this.
pub const BLOCK_BYTES: u64 = 512;
/// Rounded requests up to this size belong to the small pool.
pub(super) const SMALL_BYTES: u64 = MIB;
/// Size of the small pool's segments and pages.
pub(super) const SMALL_SEGMENT_BYTES: u64 = 2 * MIB;
/// Rounded requests below this size share segments of the configured size.
pub(super) const MIN_LARGE_ALLOC: u64 = 10 * MIB;
/// Segments for one large request are multiples of this.
pub(super) const ROUND_LARGE_BYTES: u64 = 2 * MIB;
/// Requests of this size or more are refused ("1EB").
pub(super) const TENSOR_LIMIT_BYTES: u64 = 1 << 60;

/// Rounds a request of `bytes` (< 2^60) up to the size of its block, which is at least 512: by the divisions of its
/// power of two if those are set, else to a multiple of 512.
pub(super) fn round(bytes: u64, divisions: &[u64; 16]) -> u64 {
    if bytes < BLOCK_BYTES {
        return BLOCK_BYTES;
    }
    let interval = bytes.ilog2().saturating_sub(20).min(15);
    let division = divisions[interval as usize];
    if division > 1 && bytes > BLOCK_BYTES * division { to_division(bytes, division) } else { up(bytes, BLOCK_BYTES) }
}

/// Rounds `bytes` up to one of `division` (a power of two) steps between its power of two and the next.
fn to_division(bytes: u64, division: u64) -> u64 {
    if bytes.is_power_of_two() {
        return bytes;
    }
    let floor = 1 << bytes.ilog2();
    match floor >> division.ilog2() {
        0 => floor << 1,
        step => up(bytes, step),
    }
}

/// Size of the segment to ask the driver for when no block fits a rounded request.
pub(super) fn segment(rounded_bytes: u64, large_segment_bytes: u64) -> u64 {
    if rounded_bytes <= SMALL_BYTES {
        SMALL_SEGMENT_BYTES
    } else if rounded_bytes < MIN_LARGE_ALLOC {
        large_segment_bytes
    } else {
        up(rounded_bytes, ROUND_LARGE_BYTES)
    }
}

fn up(bytes: u64, step: u64) -> u64 {
    bytes.next_multiple_of(step)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_round_to_512_or_to_divisions_of_their_power_of_two() {
        let plain = [0; 16];
        assert_eq!([1, 511, 512, 513, 1024].map(|n| round(n, &plain)), [512, 512, 512, 1024, 1024]);
        let by4 = [4; 16];
        assert_eq!(
            [1000, 1200, 2049, 3_000_000, 5_000_000, 70_000_000].map(|n| round(n, &by4)),
            [1024, 1536, 2560, 3_145_728, 5_242_880, 83_886_080]
        );
        assert_eq!(round(70_000_000, &[8; 16]), 75_497_472);
        assert_eq!(round(33 << 20, &[1; 16]), 33 << 20);
    }

    #[test]
    fn segments_have_three_kinds_of_size() {
        let of = |bytes| segment(round(bytes, &[0; 16]), 20 * MIB);
        assert_eq!([of(1), of(MIB), of(MIB + 1), of(10_485_248)], [2 * MIB, 2 * MIB, 20 * MIB, 20 * MIB]);
        assert_eq!([of(10_485_249), of(10_485_760), of(10_485_761)], [10 * MIB, 10 * MIB, 12 * MIB]);
    }
}
