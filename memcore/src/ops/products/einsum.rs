//! Sums of products over named dimensions, as PyTorch makes them: products of two operands at a time, whose dimensions are reordered.

use super::matrices::bmm;
use crate::autograd::Tensor;
use crate::context;
use crate::error::{Error, Result};
use crate::ops::autocast::lower;
use crate::ops::pointwise::binary::mul;
use crate::ops::reduce::sums_and_extremes::sum_axes;
use crate::ops::shape::strided::diagonal;
use crate::ops::shape::view::{Dims, permute, reshape, unsqueeze, view};

/// `equation` says the dimensions of each operand and of the result, a letter for each: `bij,bjk->bik`. Letters that the result lacks are summed over; an
/// ellipsis stands for any others, which are broadcast; of a letter that an operand has twice the diagonal is taken. Two operands at a time are
/// multiplied, the first ones first. Saves what the products or the sum save.
///
/// # Errors
/// As [`einsum_along`].
pub fn einsum(equation: &str, operands: &[&Tensor]) -> Result<Tensor> {
    einsum_along(equation, operands, &[])
}

/// [`einsum`] whose operands are multiplied in the order of `path`: two numbers of remaining operands for each product, which becomes the last of them.
///
/// # Errors
/// [`Error::Invalid`] for an equation or a path that does not belong to the operands; [`Error::Shape`] if their sizes do not fit; errors of the device.
pub fn einsum_along(equation: &str, operands: &[&Tensor], path: &[usize]) -> Result<Tensor> {
    let named = Equation::parsed(equation, operands)?;
    let _op = context::op("einsum");
    let lowered = operands.iter().map(|x| lower(x)).collect::<Result<Vec<_>>>()?;
    let ordered = lowered.iter().zip(&named.operands).map(|(x, letters)| named.ordered(x, letters));
    let mut left = ordered.collect::<Result<Vec<Tensor>>>()?;
    drop(lowered);
    // In how many of the remaining operands each dimension is.
    let mut uses: Vec<usize> =
        (0..named.order.len()).map(|i| left.iter().filter(|x| x.dims()[i] != 1).count()).collect();
    let mut steps = path.chunks_exact(2);
    while left.len() > 1 {
        let (i, j) = match steps.next() {
            Some(pair) => (pair[0].min(pair[1]), pair[0].max(pair[1])),
            None => (0, 1),
        };
        if i == j || j >= left.len() {
            return Err(Error::invalid(
                "einsum",
                format!("{path:?} is not a path through {} operands", operands.len()),
            ));
        }
        let (b, a) = (left.remove(j), left.remove(i));
        let product = named.product(a, b, &mut uses)?;
        left.insert(if path.is_empty() { 0 } else { left.len() }, product);
    }
    let Some(y) = left.pop() else { return Err(Error::invalid("einsum", "of no operand")) };
    match (named.summed(), operands.len()) {
        (0, _) => Ok(y),
        (_, 1) => sum_axes(&y, &(named.result.len()..named.order.len()).collect::<Vec<_>>(), false),
        _ => {
            let dims: Dims = y.dims()[..named.result.len()].into();
            view(&y, &dims)
        }
    }
}

struct Equation {
    /// The dimensions of each operand: letters, and numbers below them for those of the ellipsis.
    operands: Vec<Vec<u8>>,
    result: Vec<u8>,
    /// All dimensions: those of the result, then those that are summed over, the ellipsis before the alphabet.
    order: Vec<u8>,
}

impl Equation {
    fn parsed(equation: &str, operands: &[&Tensor]) -> Result<Self> {
        let wrong = |problem: &str| Error::invalid("einsum", format!("{equation}: {problem}"));
        let bare: String = equation.chars().filter(|c| !c.is_whitespace()).collect();
        let (inputs, result) =
            bare.split_once("->").map_or((&bare[..], None), |(inputs, result)| (inputs, Some(result)));
        let parts: Vec<&str> = inputs.split(',').collect();
        if parts.len() != operands.len() {
            return Err(wrong("not one part for each operand"));
        }
        let hidden = |part: &str, x: &Tensor| x.rank().saturating_sub(part.len().saturating_sub(ELLIPSIS.len()));
        let among = parts.iter().zip(operands).filter(|(part, _)| part.contains(ELLIPSIS));
        let most = among.map(|(part, x)| hidden(part, x)).max().unwrap_or_default();
        let letters = |part: &str, count: usize| {
            letters(part, most, count).ok_or_else(|| wrong("other than letters and one ellipsis in a part"))
        };
        let named = parts.iter().zip(operands).map(|(part, x)| letters(part, hidden(part, x)));
        let named = named.collect::<Result<Vec<_>>>()?;
        let mut all: Vec<u8> = named.iter().flatten().copied().collect();
        all.sort_unstable();
        let once = |letter: &u8| *letter < b'A' || all.iter().filter(|other| *other == letter).count() == 1;
        let mut result = match result {
            Some(text) => letters(text, most)?,
            // Without a result it is made of the ellipsis and the letters that occur once.
            None => all.iter().copied().filter(once).collect(),
        };
        if equation.contains("->") && result.iter().enumerate().any(|(i, letter)| result[..i].contains(letter)) {
            return Err(wrong("a letter that occurs twice in the result"));
        }
        result.dedup();
        if let Some(letter) = result.iter().find(|letter| !all.contains(letter)) {
            return Err(wrong(&format!("no operand has {}", char::from(*letter))));
        }
        all.dedup();
        let summed = all.into_iter().filter(|letter| !result.contains(letter));
        let order = result.iter().copied().chain(summed).collect();
        let equation = Self { operands: named, result, order };
        match operands.iter().zip(&equation.operands).all(|(x, letters)| x.rank() == letters.len()) {
            true => Ok(equation),
            false => Err(Error::shape("einsum", format!("{bare} of {:?}", dims_of(operands)))),
        }
    }

    /// Returns the number of dimensions that are summed over.
    fn summed(&self) -> usize {
        self.order.len() - self.result.len()
    }

    /// Returns a view of an operand with all dimensions in order; those that it lacks have size 1.
    fn ordered(&self, x: &Tensor, letters: &[u8]) -> Result<Tensor> {
        let mut x = x.clone();
        let mut seen: Vec<u8> = Vec::new();
        for letter in letters {
            match seen.iter().position(|other| other == letter) {
                None => seen.push(*letter),
                Some(first) => {
                    x = diagonal(&x, 0, first, seen.len())?;
                    let last = x.rank() - 1;
                    let mut axes: Dims = (0..last).collect();
                    axes.insert(first, last);
                    x = permute(&x, &axes)?;
                }
            }
        }
        let mut axes = Dims::new();
        for letter in &self.order {
            axes.push(match seen.iter().position(|other| other == letter) {
                Some(axis) => axis,
                None => {
                    x = unsqueeze(&x, x.rank())?;
                    x.rank() - 1
                }
            });
        }
        permute(&x, &axes)
    }

    /// Multiplies two operands, and sums over the dimensions that no other one has.
    fn product(&self, a: Tensor, b: Tensor, uses: &mut [usize]) -> Result<Tensor> {
        let fits = |(&a, &b): (&usize, &usize)| a == b || a == 1 || b == 1;
        if !a.dims().iter().zip(b.dims()).all(fits) {
            return Err(Error::shape("einsum", format!("{:?} and {:?}", a.dims(), b.dims())));
        }
        let (mut common, mut of_a, mut of_b) = (Vec::new(), Vec::new(), Vec::new());
        for (i, left) in uses.iter_mut().enumerate().skip(self.result.len()) {
            let (in_a, in_b) = (a.dims()[i] != 1, b.dims()[i] != 1);
            if in_a && in_b {
                *left -= 1;
            }
            // A dimension that only one operand has is summed before the product.
            let sums = match (in_a, in_b) {
                (true, true) => &mut common,
                (true, false) => &mut of_a,
                (false, true) => &mut of_b,
                (false, false) => continue,
            };
            if *left == 1 {
                *left = 0;
                sums.push(i);
            }
        }
        let summed = |x: Tensor, axes: &[usize]| if axes.is_empty() { Ok(x) } else { sum_axes(&x, axes, true) };
        let (a, b) = (summed(a, &of_a)?, summed(b, &of_b)?);
        if common.is_empty() { mul(&a, &b) } else { self.contracted(&a, &b, |i| common.contains(&i)) }
    }

    /// Makes one batched product: `[both, left, summed] @ [both, summed, right]`.
    fn contracted(&self, a: &Tensor, b: &Tensor, is_summed: impl Fn(usize) -> bool) -> Result<Tensor> {
        let all = 0..self.order.len();
        let among = |in_a: bool, in_b: bool| {
            let belongs = |i: &usize| !is_summed(*i) && (a.dims()[*i] != 1) == in_a && (b.dims()[*i] != 1) == in_b;
            all.clone().filter(belongs).collect::<Vec<usize>>()
        };
        let (both, left) = (among(true, true), among(true, false));
        // Dimensions of size 1 in both go with the right operand.
        let right: Vec<usize> = all.clone().filter(|&i| !is_summed(i) && a.dims()[i] == 1).collect();
        let sums: Vec<usize> = all.clone().filter(|&i| is_summed(i)).collect();
        let size = |x: &Tensor, axes: &[usize]| axes.iter().map(|&i| x.dims()[i]).product::<usize>();
        let of_a = [&both[..], &left, &sums, &right].concat();
        let of_b = [&both[..], &sums, &right, &left].concat();
        let dims_a = [size(a, &both), size(a, &left), size(a, &sums)];
        let dims_b = [size(a, &both), size(a, &sums), size(b, &right)];
        let left_matrix = reshape(&permute(a, &of_a)?, &dims_a)?;
        let y = bmm(&left_matrix, &reshape(&permute(b, &of_b)?, &dims_b)?)?;
        let dim = |&i: &usize| if is_summed(i) { 1 } else { a.dims()[i].max(b.dims()[i]) };
        let dims: Dims = of_a.iter().map(dim).collect();
        let mut back: Dims = (0..of_a.len()).collect();
        of_a.iter().enumerate().for_each(|(at, &axis)| back[axis] = at);
        permute(&view(&y, &dims)?, &back)
    }
}

/// Any dimensions that have no letter.
const ELLIPSIS: &str = "...";

/// Returns the letters of a part, with numbers for the `count` dimensions of its ellipsis, the last of `most`; `None` if it has others.
fn letters(part: &str, most: usize, count: usize) -> Option<Vec<u8>> {
    let (before, after) = part.split_once(ELLIPSIS).map_or((part, None), |(before, after)| (before, Some(after)));
    let of_ellipsis = if after.is_some() { most.saturating_sub(count)..most } else { 0..0 };
    let is_letter = |text: &str| text.bytes().all(|letter| letter.is_ascii_alphabetic());
    if most > usize::from(b'A') || !is_letter(before) || !after.is_none_or(is_letter) {
        return None;
    }
    Some(before.bytes().chain(of_ellipsis.map(|i| i as u8)).chain(after.unwrap_or_default().bytes()).collect())
}

fn dims_of(operands: &[&Tensor]) -> Vec<Vec<usize>> {
    operands.iter().map(|x| x.dims().to_vec()).collect()
}
