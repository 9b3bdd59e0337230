//! Reductions of slices in a fixed order: four vectors of partial results, joined pairwise at the end.

use half::f16;

use crate::element::{Float, Real, larger, smaller};
use crate::simd::Isa;
use crate::vector::{MAX_N, Vector};

/// Elements that are summed in the compute type before their sum is added in f64 (or i64), so that the error does not grow with the number
/// of elements.
pub(crate) const RUN: usize = 4096;

/// Rule that joins partial results.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Join {
    /// The sum.
    Add,
    /// The larger; NaN wins.
    Larger,
    /// The smaller; NaN wins.
    Smaller,
}

impl Join {
    #[inline(always)]
    fn start<R: Real>(self) -> R {
        match self {
            Join::Add => R::default(),
            Join::Larger => R::LOWEST,
            Join::Smaller => R::HIGHEST,
        }
    }

    #[inline(always)]
    fn vectors<R: Real, V: Vector<R>>(self, a: V, b: V) -> V {
        match self {
            Join::Add => a.add(b),
            Join::Larger => a.larger(b),
            Join::Smaller => a.smaller(b),
        }
    }

    #[inline(always)]
    fn numbers<R: Real>(self, a: R, b: R) -> R {
        match self {
            Join::Add => a + b,
            Join::Larger => larger(a, b),
            Join::Smaller => smaller(a, b),
        }
    }
}

/// Operation on each element (of up to three slices).
pub(crate) trait Step<R: Real>: Copy {
    /// Rule that joins partial results.
    const JOIN: Join = Join::Add;
    /// Returns the partial results after one more vector of elements.
    fn step<V: Vector<R>>(self, partial: V, x: V, y: V, z: V) -> V;
}

/// `Σ x`
#[derive(Clone, Copy)]
pub(crate) struct Sum;
/// `Σ x²`
#[derive(Clone, Copy)]
pub(crate) struct Squares;
/// The largest; NaN wins.
#[derive(Clone, Copy)]
pub(crate) struct Largest;
/// The smallest; NaN wins.
#[derive(Clone, Copy)]
pub(crate) struct Smallest;
/// The largest magnitude; NaN wins.
#[derive(Clone, Copy)]
pub(crate) struct LargestMagnitude;
/// `Σ (x − mean)²`
#[derive(Clone, Copy)]
pub(crate) struct Deviations<R> {
    /// Number that is subtracted.
    pub(crate) mean: R,
}
/// `Σ x·y`
#[derive(Clone, Copy)]
pub(crate) struct Dot;
/// `Σ x·(y − mean)`
#[derive(Clone, Copy)]
pub(crate) struct CentredDot<R> {
    /// Number that is subtracted.
    pub(crate) mean: R,
}
/// `Σ x·y·(z − mean)`
#[derive(Clone, Copy)]
pub(crate) struct WeightedCentredDot<R> {
    /// Number that is subtracted.
    pub(crate) mean: R,
}

macro_rules! step {
    ($(<$($G:ident)?> $Step:ty, $join:ident, |$self:ident, $partial:ident, $x:ident, $y:ident, $z:ident| $body:expr;)*) => {$(
        impl<R: Real> Step<R> for $Step {
            const JOIN: Join = Join::$join;
            #[inline(always)]
            fn step<V: Vector<R>>($self, $partial: V, $x: V, $y: V, $z: V) -> V {
                $body
            }
        }
    )*};
}
step! {
    <> Sum, Add, |self, s, x, _y, _z| s.add(x);
    <> Squares, Add, |self, s, x, _y, _z| x.fma(x, s);
    <> Largest, Larger, |self, s, x, _y, _z| s.larger(x);
    <> Smallest, Smaller, |self, s, x, _y, _z| s.smaller(x);
    <> LargestMagnitude, Larger, |self, s, x, _y, _z| s.larger(x.larger(V::splat(R::default()).sub(x)));
    <R> Deviations<R>, Add, |self, s, x, _y, _z| {
        let d = x.sub(V::splat(self.mean));
        d.fma(d, s)
    };
    <> Dot, Add, |self, s, x, y, _z| x.fma(y, s);
    <R> CentredDot<R>, Add, |self, s, x, y, _z| x.fma(y.sub(V::splat(self.mean)), s);
    <R> WeightedCentredDot<R>, Add, |self, s, x, y, z| x.mul(y).fma(z.sub(V::splat(self.mean)), s);
}

/// Reduces one slice.
#[inline(always)]
pub(crate) fn fold<S: Isa, T: Float>(step: impl Step<T::Compute>, xs: &[T]) -> T::Compute {
    fold3::<S, T>(step, xs, xs, xs)
}

/// Reduces two slices of one length.
#[inline(always)]
pub(crate) fn fold2<S: Isa, T: Float>(step: impl Step<T::Compute>, xs: &[T], ys: &[T]) -> T::Compute {
    fold3::<S, T>(step, xs, ys, xs)
}

/// Reduces three slices of one length.
#[inline(always)]
pub(crate) fn fold3<S: Isa, T: Float>(step: impl Step<T::Compute>, xs: &[T], ys: &[T], zs: &[T]) -> T::Compute {
    fold_vectors::<T, <T::Compute as Real>::Vector<S>, _>(step, xs, ys, zs)
}

#[inline(always)]
fn fold_vectors<T: Float, V: Vector<T::Compute>, F: Step<T::Compute>>(
    step: F,
    xs: &[T],
    ys: &[T],
    zs: &[T],
) -> T::Compute {
    let n = xs.len();
    let (ys, zs) = (&ys[..n], &zs[..n]);
    let start = F::JOIN.start::<T::Compute>();
    let mut partial = [V::splat(start); 4];
    let mut at = 0;
    let slices = [xs, ys, zs];
    // SAFETY: only vectors that end before `n`.
    unsafe {
        while at + 4 * V::N <= n {
            partial[0] = one::<T, V, F>(step, partial[0], slices, at);
            partial[1] = one::<T, V, F>(step, partial[1], slices, at + V::N);
            partial[2] = one::<T, V, F>(step, partial[2], slices, at + 2 * V::N);
            partial[3] = one::<T, V, F>(step, partial[3], slices, at + 3 * V::N);
            at += 4 * V::N;
        }
        while at + V::N <= n {
            partial[0] = one::<T, V, F>(step, partial[0], slices, at);
            at += V::N;
        }
    }
    let mut lanes = [start; MAX_N];
    if at < n {
        // The last elements fill a vector. Only as many of its results count as there are elements.
        let (x, y, z) = (xs[at..].as_ptr(), ys[at..].as_ptr(), zs[at..].as_ptr());
        // SAFETY: the slices end after these elements.
        let (x, y, z) = unsafe { (tail::<T, V>(x, n - at), tail::<T, V>(y, n - at), tail::<T, V>(z, n - at)) };
        let last = step.step::<V>(V::splat(start), x, y, z);
        // SAFETY: there is room for `MAX_N` ≥ `V::N` numbers.
        unsafe { last.store(lanes.as_mut_ptr()) };
        lanes[n - at..].fill(start);
    }
    // SAFETY: `lanes` holds `MAX_N` ≥ `V::N` numbers.
    let last = unsafe { V::load(lanes.as_ptr()) };
    let low = F::JOIN.vectors(partial[0], partial[1]);
    let high = F::JOIN.vectors(partial[2], partial[3]);
    let all = F::JOIN.vectors(F::JOIN.vectors(low, high), last);
    // SAFETY: as above.
    unsafe { all.store(lanes.as_mut_ptr()) };
    let mut half = V::N;
    while half > 1 {
        half /= 2;
        for l in 0..half {
            lanes[l] = F::JOIN.numbers(lanes[l], lanes[l + half]);
        }
    }
    lanes[0]
}

// Functions, not closures. The compiler may decide not to inline a closure. It is then compiled for the least instruction set, which makes a call
// of each operation on a vector.

/// Returns the partial results after the vectors at `at`.
///
/// # Safety
/// `V::N` elements from there on lie in each slice.
#[inline(always)]
unsafe fn one<T: Float, V: Vector<T::Compute>, F: Step<T::Compute>>(
    step: F,
    partial: V,
    [xs, ys, zs]: [&[T]; 3],
    at: usize,
) -> V {
    // SAFETY: the caller asserts it.
    let (x, y, z) = unsafe { (load(xs.as_ptr().add(at)), load(ys.as_ptr().add(at)), load(zs.as_ptr().add(at))) };
    step.step::<V>(partial, x, y, z)
}

/// Loads fewer than `V::N` elements, followed by zeros.
///
/// # Safety
/// `n` elements lie at `src`.
#[inline(always)]
unsafe fn tail<T: Float, V: Vector<T::Compute>>(src: *const T, n: usize) -> V {
    let mut buffer = [T::put(T::Compute::default()); MAX_N];
    // SAFETY: the caller asserts the elements; the buffer holds `MAX_N` ≥ `V::N` of them.
    unsafe {
        std::ptr::copy_nonoverlapping(src, buffer[..n].as_mut_ptr(), n);
        load::<T, V>(buffer.as_ptr())
    }
}

/// Loads a vector of a type's values, converted. (Its buffer has the largest size, because const generics cannot use associated constants.)
///
/// # Safety
/// `V::N` elements lie at `src`.
#[inline(always)]
unsafe fn load<T: Float, V: Vector<T::Compute>>(src: *const T) -> V {
    if std::any::TypeId::of::<T>() == std::any::TypeId::of::<T::Compute>() {
        // SAFETY: the same type; the caller asserts the rest.
        return unsafe { V::load(src.cast()) };
    }
    if std::any::TypeId::of::<T>() == std::any::TypeId::of::<f16>() {
        // SAFETY: that type; the caller asserts the rest.
        if let Some(widened) = unsafe { V::load_f16(src.cast()) } {
            return widened;
        }
    }
    let mut buffer = [<T::Compute as Default>::default(); MAX_N];
    for (i, value) in buffer[..V::N].iter_mut().enumerate() {
        // SAFETY: the caller asserts it.
        *value = unsafe { *src.add(i) }.get();
    }
    // SAFETY: the buffer holds `MAX_N` ≥ `V::N` numbers.
    unsafe { V::load(buffer.as_ptr()) }
}

/// Writes a vector of values, rounded to the type.
///
/// # Safety
/// There is room for `V::N` elements.
#[inline(always)]
unsafe fn store<T: Float, V: Vector<T::Compute>>(values: V, out: *mut T) {
    if std::any::TypeId::of::<T>() == std::any::TypeId::of::<T::Compute>() {
        // SAFETY: the same type; the caller asserts the rest.
        return unsafe { values.store(out.cast()) };
    }
    // SAFETY: that type; the caller asserts the rest.
    if std::any::TypeId::of::<T>() == std::any::TypeId::of::<f16>() && unsafe { values.store_f16(out.cast()) } {
        return;
    }
    let mut buffer = [<T::Compute as Default>::default(); MAX_N];
    // SAFETY: the buffer holds `MAX_N` ≥ `V::N` numbers.
    unsafe { values.store(buffer.as_mut_ptr()) };
    for (i, &value) in buffer[..V::N].iter().enumerate() {
        // SAFETY: the caller asserts it.
        unsafe { *out.add(i) = T::put(value) };
    }
}

/// Function of each element (of up to three operands).
pub(crate) trait Map<R: Real>: Copy {
    /// Returns the results of one more vector of elements.
    fn map<V: Vector<R>>(self, x: V, y: V, z: V) -> V;
}

/// Computes `out = f(x, y, z)` of `n` elements. They are widened and rounded in registers, which takes half as long as a copy in the compute type.
///
/// # Safety
/// The elements exist. `out` is one of the operands or shares nothing with them.
#[inline(always)]
pub(crate) unsafe fn map3<S: Isa, T: Float>(f: impl Map<T::Compute>, inputs: [*const T; 3], out: *mut T, n: usize) {
    // SAFETY: passed on to the caller.
    unsafe { map_vectors::<T, <T::Compute as Real>::Vector<S>, _>(f, inputs, out, n) }
}

/// # Safety
/// As [`map3`].
#[inline(always)]
unsafe fn map_vectors<T: Float, V: Vector<T::Compute>, F: Map<T::Compute>>(
    f: F,
    [x, y, z]: [*const T; 3],
    out: *mut T,
    n: usize,
) {
    let mut at = 0;
    // SAFETY: only elements before `n`, which the caller asserts; the buffers hold `MAX_N` ≥ `V::N` elements.
    unsafe {
        while at + 4 * V::N <= n {
            for i in 0..4 {
                one_mapped::<T, V, F>(f, [x, y, z], out, at + i * V::N);
            }
            at += 4 * V::N;
        }
        while at + V::N <= n {
            one_mapped::<T, V, F>(f, [x, y, z], out, at);
            at += V::N;
        }
        if at < n {
            let rest = n - at;
            let (x, y, z) =
                (tail::<T, V>(x.add(at), rest), tail::<T, V>(y.add(at), rest), tail::<T, V>(z.add(at), rest));
            let mut buffer = [T::put(T::Compute::default()); MAX_N];
            store::<T, V>(f.map(x, y, z), buffer.as_mut_ptr());
            std::ptr::copy_nonoverlapping(buffer.as_ptr(), out.add(at), rest);
        }
    }
}

/// Computes the vector at `at`.
///
/// # Safety
/// As [`map3`], for `V::N` elements from there on.
#[inline(always)]
unsafe fn one_mapped<T: Float, V: Vector<T::Compute>, F: Map<T::Compute>>(
    f: F,
    [x, y, z]: [*const T; 3],
    out: *mut T,
    at: usize,
) {
    // SAFETY: passed on to the caller.
    unsafe {
        let (x, y, z) = (load::<T, V>(x.add(at)), load::<T, V>(y.add(at)), load::<T, V>(z.add(at)));
        store::<T, V>(f.map(x, y, z), out.add(at));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simd::simd;

    simd! {
        fn all_folds(xs: &[f32], ys: &[f32]) -> [f32; 7] = all_folds_body;
        fn half_sum(xs: &[half::bf16]) -> f32 = half_sum_body;
        fn multiply_add<T: Float>(xs: &mut [T], ys: &[T]) = multiply_add_body;
    }

    #[inline(always)]
    fn all_folds_body<S: Isa>(xs: &[f32], ys: &[f32]) -> [f32; 7] {
        [
            fold::<S, f32>(Sum, xs),
            fold::<S, f32>(Squares, xs),
            fold::<S, f32>(Largest, xs),
            fold::<S, f32>(Smallest, xs),
            fold::<S, f32>(LargestMagnitude, xs),
            fold2::<S, f32>(Dot, xs, ys),
            fold3::<S, f32>(WeightedCentredDot { mean: 2.0 }, xs, ys, ys),
        ]
    }

    #[inline(always)]
    fn half_sum_body<S: Isa>(xs: &[half::bf16]) -> f32 {
        fold::<S, half::bf16>(Sum, xs)
    }

    /// `x·y + y`
    #[derive(Clone, Copy)]
    struct MultiplyAdd;

    impl<R: Real> Map<R> for MultiplyAdd {
        #[inline(always)]
        fn map<V: Vector<R>>(self, x: V, y: V, z: V) -> V {
            x.fma(y, z)
        }
    }

    #[inline(always)]
    fn multiply_add_body<S: Isa, T: Float>(xs: &mut [T], ys: &[T]) {
        let out = xs.as_mut_ptr();
        // SAFETY: slices of one length; the result is one of the operands.
        unsafe { map3::<S, T>(MultiplyAdd, [out.cast_const(), ys.as_ptr(), ys.as_ptr()], out, xs.len()) };
    }

    fn every_element_is_mapped<T: Float<Compute = f32>>() {
        for n in [0usize, 1, 7, 8, 9, 31, 32, 33, 63, 64, 200] {
            // Small integers, which 16 bits hold exactly.
            let (x, y) = (|i: usize| (i * 7 % 11) as f32 - 5.0, |i: usize| (i * 5 % 7) as f32);
            let (mut xs, ys): (Vec<T>, Vec<T>) = (0..n).map(|i| (T::put(x(i)), T::put(y(i)))).unzip();
            xs.push(T::put(9.0));
            multiply_add(&mut xs[..n], &ys);
            let want: Vec<f32> = (0..n).map(|i| x(i) * y(i) + y(i)).chain([9.0]).collect();
            assert_eq!(xs.iter().map(|x| x.get()).collect::<Vec<_>>(), want, "{n}");
        }
    }

    #[test]
    fn every_element_is_mapped_once_in_place() {
        every_element_is_mapped::<f32>();
        every_element_is_mapped::<f16>();
        every_element_is_mapped::<half::bf16>();
    }

    #[test]
    fn every_element_counts_once() {
        for n in [0usize, 1, 3, 7, 8, 9, 31, 32, 33, 40, 63, 64, 65, 200] {
            // Small integers, so that sums are exact in any order.
            let xs: Vec<f32> = (0..n).map(|i| (i * 7 % 11) as f32 - 5.0).collect();
            let ys: Vec<f32> = (0..n).map(|i| (i * 5 % 7) as f32).collect();
            let sum = |f: &dyn Fn(usize) -> f32| (0..n).map(f).sum::<f32>();
            let magnitude = xs.iter().map(|x| x.abs()).fold(f32::NEG_INFINITY, f32::max);
            let want = [
                sum(&|i| xs[i]),
                sum(&|i| xs[i] * xs[i]),
                xs.iter().copied().fold(f32::NEG_INFINITY, f32::max),
                xs.iter().copied().fold(f32::INFINITY, f32::min),
                magnitude,
                sum(&|i| xs[i] * ys[i]),
                sum(&|i| xs[i] * ys[i] * (ys[i] - 2.0)),
            ];
            assert_eq!(all_folds(&xs, &ys), want, "{n}");
            let halves: Vec<half::bf16> = xs.iter().map(|&x| half::bf16::from_f32(x)).collect();
            assert_eq!(half_sum(&halves), want[0]);
        }
    }
}
