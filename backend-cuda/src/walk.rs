//! Walks over the operands of an elementwise launch: the host's side of `kernels/walk.cuh`.

use memcore::Layout;
use memcore::layout::MAX_RANK;

use crate::arguments::{Definition, argument, arguments};

/// Launches of more than one dimension stay below this many packs, so that kernels divide 32-bit numbers.
const MAX_PACKS: u64 = 1 << 31;

arguments! { DIVIDER:
    /// Division by a number that the host knows: `n / d = (umulhi(n, magic) + n) >> shift` for n < 2³¹ (Granlund and
    /// Montgomery, "Division by invariant integers using multiplication", 1994).
    #[derive(Debug, Default)]
    pub(crate) struct Divider {
        divisor: u32,
        magic: u32,
        shift: u32,
    }
}

impl Divider {
    /// Creates a divider for numbers below 2³¹; `divisor` is from 1 to 2³¹.
    pub(crate) fn new(divisor: u32) -> Self {
        let shift = divisor.max(1).next_power_of_two().trailing_zeros();
        let wide = u64::from(divisor.max(1));
        let magic = (((1u64 << 32) * ((1u64 << shift) - wide)) / wide + 1) as u32;
        Self { divisor, magic, shift }
    }
}

argument! { [const N: usize] [format!("Walk<{N}>")]
    /// The dimensions of N operands, innermost first, merged if all operands allow it. The innermost one counts packs.
    /// With more than one dimension there are fewer than 2³¹ packs: larger launches are split.
    #[derive(Debug)]
    pub(crate) struct Walk<N> {
        pub(crate) packs: u64,
        /// With one dimension the last pack may be incomplete.
        elements: u64,
        rank: u32,
        /// Bit `k` is set if operand `k` repeats one element along the innermost dimension.
        repeats: u32,
        dims: [Divider; MAX_RANK],
        /// Strides in elements, per step of the dimension.
        strides: [[i64; MAX_RANK]; N],
    }
}

/// C definitions of walks: the maximum rank, and a struct for each number of operands.
pub(crate) const WALKS: &[Definition] = &[
    || format!("#define MAX_RANK {MAX_RANK}\ntemplate <int N> struct Walk;\n"),
    || format!("template <> {}", Walk::<1>::definition()),
    || format!("template <> {}", Walk::<2>::definition()),
    || format!("template <> {}", Walk::<3>::definition()),
    || format!("template <> {}", Walk::<4>::definition()),
];

/// The dimensions of N operands, outermost first, while they are merged.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Dims<const N: usize> {
    rank: usize,
    sizes: [u64; MAX_RANK],
    strides: [[u64; MAX_RANK]; N],
}

impl<const N: usize> Dims<N> {
    /// The dimensions as they are, sizes of 1 included. All layouts have the same sizes.
    pub(crate) fn plain(layouts: [&Layout; N]) -> Self {
        let mut dims = Self { rank: layouts[0].rank(), sizes: [1; MAX_RANK], strides: [[0; MAX_RANK]; N] };
        for d in 0..dims.rank {
            dims.sizes[d] = layouts[0].dims()[d] as u64;
            for (strides, layout) in dims.strides.iter_mut().zip(layouts) {
                strides[d] = layout.strides()[d] as u64;
            }
        }
        dims
    }

    /// The same elements in as few dimensions as possible: sizes of 1 dropped, sorted by operand 0's strides, and
    /// neighbours merged if they are contiguous in every operand.
    pub(crate) fn merged(layouts: [&Layout; N]) -> Self {
        let mut dims = Self::plain(layouts);
        dims.drop_ones();
        dims.sort();
        dims.merge();
        dims
    }

    /// Like [`Dims::merged`], but in the original order: element `i` of a walk is the `i`-th in row-major order.
    pub(crate) fn ordered(layouts: [&Layout; N]) -> Self {
        let mut dims = Self::plain(layouts);
        dims.drop_ones();
        dims.merge();
        dims
    }

    /// Operand `k`'s stride along the innermost dimension; 0 without dimensions.
    pub(crate) fn inner_stride(&self, k: usize) -> u64 {
        if self.rank == 0 { 0 } else { self.strides[k][self.innermost()] }
    }

    /// True if there is one dimension, or none.
    pub(crate) fn is_one(&self) -> bool {
        self.rank <= 1
    }

    fn set(&mut self, to: usize, from: usize) {
        self.sizes[to] = self.sizes[from];
        for strides in &mut self.strides {
            strides[to] = strides[from];
        }
    }

    fn swap(&mut self, a: usize, b: usize) {
        self.sizes.swap(a, b);
        for strides in &mut self.strides {
            strides.swap(a, b);
        }
    }

    fn drop_ones(&mut self) {
        let mut kept = 0;
        for d in 0..self.rank {
            if self.sizes[d] != 1 {
                self.set(kept, d);
                kept += 1;
            }
        }
        self.rank = kept;
    }

    /// Sorts by the stride of operand 0, the result, largest first: writes are then as consecutive as possible.
    fn sort(&mut self) {
        for end in 1..self.rank {
            let mut d = end;
            while d > 0 && self.strides[0][d - 1] < self.strides[0][d] {
                self.swap(d - 1, d);
                d -= 1;
            }
        }
    }

    fn merge(&mut self) {
        let mut last = 0;
        for d in 1..self.rank {
            let follows = self.strides.iter().all(|s| s[last] == s[d] * self.sizes[d]);
            if follows {
                self.sizes[last] *= self.sizes[d];
                for strides in &mut self.strides {
                    strides[last] = strides[d];
                }
            } else {
                last += 1;
                self.set(last, d);
            }
        }
        if self.rank > 0 {
            self.rank = last + 1;
        }
    }

    fn innermost(&self) -> usize {
        self.rank.saturating_sub(1)
    }

    /// True if `pack` elements, each of `sizes` bytes, can be moved at a time from the addresses `bases`: in every
    /// operand the innermost dimension is contiguous or one repeated element, and every pack starts at a multiple of
    /// its size.
    pub(crate) fn packs(&self, bases: [u64; N], sizes: [u64; N], pack: u64) -> bool {
        let inner = self.innermost();
        if self.rank == 0 || (self.rank > 1 && !self.sizes[inner].is_multiple_of(pack)) || self.sizes[inner] < pack {
            return false;
        }
        (0..N).all(|k| match self.strides[k][inner] {
            0 => k > 0,
            1 => {
                let outer = self.strides[k][..inner].iter().all(|stride| stride.is_multiple_of(pack));
                outer && bases[k].is_multiple_of(pack * sizes[k])
            }
            _ => false,
        })
    }

    /// Calls `launch` with one walk. If that would be too long, calls it with several walks and the offsets of their
    /// first elements: the longest dimension other than the innermost is cut.
    pub(crate) fn each_walk<E>(
        &self,
        pack: u64,
        launch: &mut impl FnMut(&Walk<N>, [u64; N]) -> Result<(), E>,
    ) -> Result<(), E> {
        self.split(pack, [0; N], launch)
    }

    fn split<E>(
        &self,
        pack: u64,
        offsets: [u64; N],
        launch: &mut impl FnMut(&Walk<N>, [u64; N]) -> Result<(), E>,
    ) -> Result<(), E> {
        let elements: u64 = self.sizes[..self.rank].iter().product();
        if self.rank <= 1 || elements / pack < MAX_PACKS {
            return launch(&self.walk(pack, elements), offsets);
        }
        let mut whole = *self;
        whole.drop_ones();
        if whole.rank <= 1 {
            return launch(&whole.walk(pack, elements), offsets);
        }
        // The longest dimension other than the innermost, so that packs stay whole.
        let cut = (0..whole.innermost()).max_by_key(|&d| whole.sizes[d]).unwrap_or(0);
        let half = whole.sizes[cut] / 2;
        let (mut low, mut high) = (whole, whole);
        low.sizes[cut] = half;
        high.sizes[cut] -= half;
        low.split(pack, offsets, launch)?;
        high.split(pack, std::array::from_fn(|k| offsets[k] + half * whole.strides[k][cut]), launch)
    }

    /// The walk over all `elements`. With several dimensions there are fewer than 2³¹ packs.
    pub(crate) fn walk(&self, pack: u64, elements: u64) -> Walk<N> {
        let mut walk = Walk {
            packs: if self.rank <= 1 { elements.div_ceil(pack) } else { elements / pack },
            elements,
            rank: self.rank as u32,
            repeats: 0,
            dims: [Divider::new(1); MAX_RANK],
            strides: [[0; MAX_RANK]; N],
        };
        for d in 0..self.rank {
            let from = self.rank - 1 - d;
            let step = if d == 0 { pack } else { 1 };
            // Only the first dimension is ever cut into packs; with one dimension it is not divided by.
            walk.dims[d] = if self.rank > 1 { Divider::new((self.sizes[from] / step) as u32) } else { Divider::new(1) };
            for k in 0..N {
                walk.strides[k][d] = (self.strides[k][from] * step) as i64;
            }
        }
        for k in 0..N {
            if self.rank > 0 && self.strides[k][self.innermost()] == 0 {
                walk.repeats |= 1 << k;
            }
        }
        walk
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn divide(n: u32, d: Divider) -> u32 {
        let high = ((u64::from(n) * u64::from(d.magic)) >> 32) as u32;
        (high + n) >> d.shift
    }

    #[test]
    fn dividers_divide() {
        for d in [1, 2, 3, 5, 7, 10, 255, 256, 257, 65_535, 65_537, 1 << 20, (1 << 31) - 1, 1 << 31] {
            let divider = Divider::new(d);
            for n in [0, 1, 2, 3, 6, 7, 8, 99, 255, 256, 65_536, 1 << 20, (1 << 31) - 2, (1 << 31) - 1] {
                assert_eq!(divide(n, divider), n / d, "{n} / {d}");
            }
        }
    }

    #[test]
    fn what_follows_each_other_is_merged() {
        let dense = Layout::contiguous(&[2, 3, 4]).unwrap();
        let dims = Dims::merged([&dense, &dense]);
        assert_eq!((dims.rank, dims.sizes[0]), (1, 24));
        let turned = Layout::contiguous(&[4, 3, 2]).unwrap().transposed(0, 2);
        // Two operands with the same order, whatever it is, are one run.
        assert_eq!(Dims::merged([&turned, &turned]).rank, 1);
        assert_eq!(Dims::merged([&dense, &turned]).rank, 3);
        let bias = Layout::contiguous(&[4]).unwrap().broadcast_to(&[2, 3, 4]).unwrap();
        let dims = Dims::merged([&dense, &bias]);
        assert_eq!((dims.rank, &dims.sizes[..2]), (2, &[6, 4][..]));
        assert_eq!(&dims.strides[1][..2], &[0, 1]);
        assert_eq!(Dims::merged([&Layout::scalar(), &Layout::scalar()]).rank, 0);
    }

    #[test]
    fn packs_need_alignment_and_whole_rows() {
        let rows = Layout::contiguous(&[3, 8]).unwrap();
        let bias = Layout::contiguous(&[8]).unwrap().broadcast_to(&[3, 8]).unwrap();
        let dims = Dims::merged([&rows, &bias]);
        assert!(dims.packs([256, 512], [4, 4], 4));
        assert!(!dims.packs([256, 516], [4, 4], 4));
        let odd = Layout::contiguous(&[3, 7]).unwrap();
        let bias = Layout::contiguous(&[7]).unwrap().broadcast_to(&[3, 7]).unwrap();
        assert!(!Dims::merged([&odd, &bias]).packs([0, 0], [4, 4], 4));
        // One run may have any length: its last pack is cut.
        assert!(Dims::merged([&odd, &odd]).packs([0, 0], [4, 4], 4));
    }

    #[test]
    fn long_walks_are_cut() {
        let long = Layout::strided(&[3, 1 << 31, 2], &[1 << 33, 2, 1 << 34]).unwrap();
        let plain = Layout::contiguous(&[3, 1 << 31, 2]).unwrap();
        let (mut elements, mut walks) = (0, 0);
        Dims::merged([&plain, &long])
            .each_walk(1, &mut |walk, _| {
                assert!(walk.packs < MAX_PACKS);
                elements += walk.elements;
                walks += 1;
                Ok::<(), ()>(())
            })
            .unwrap();
        assert_eq!(elements, 6 << 31);
        assert!(walks > 1);
    }
}
