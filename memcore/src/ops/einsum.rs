//! Sums of products over named dimensions, as PyTorch makes them: one product of two operands whose dimensions are reordered.

use super::binary::mul;
use super::matmul::bmm;
use super::reduce::sum_axes;
use super::shape::{Dims, permute, reshape, unsqueeze, view};
use crate::autograd::Tensor;
use crate::context;
use crate::error::{Error, Result};

/// `equation` says the dimensions of each operand and of the result, a letter for each: `bij,bjk->bik`. Letters that the result lacks are summed
/// over. Of one operand or two. Saves what the product or the sum saves.
///
/// # Errors
/// [`Error::Invalid`] for an equation that is not represented: with an ellipsis, a letter that occurs twice in one operand, or more than two
/// operands; [`Error::Shape`] if the operands do not fit to it; errors of the device.
pub fn einsum(equation: &str, operands: &[&Tensor]) -> Result<Tensor> {
    let named = Equation::parsed(equation, operands)?;
    let _op = context::op("einsum");
    let mut ordered = operands.iter().zip(&named.operands).map(|(x, letters)| named.ordered(x, letters));
    let (first, second) = (ordered.next(), ordered.next());
    match (first.transpose()?, second.transpose()?) {
        (Some(a), Some(b)) => named.product(&a, &b),
        (Some(a), None) if named.summed() > 0 => {
            sum_axes(&a, &(named.result.len()..named.order.len()).collect::<Vec<_>>(), false)
        }
        (Some(a), None) => Ok(a),
        _ => Err(Error::invalid("einsum", "of no operand")),
    }
}

struct Equation {
    operands: Vec<Vec<u8>>,
    result: Vec<u8>,
    /// All letters: those of the result, then those that are summed over, in the order of the alphabet.
    order: Vec<u8>,
}

impl Equation {
    fn parsed(equation: &str, operands: &[&Tensor]) -> Result<Self> {
        let wrong = |problem: &str| Error::invalid("einsum", format!("{equation}: {problem}"));
        let bare: String = equation.chars().filter(|c| !c.is_whitespace()).collect();
        let (inputs, result) =
            bare.split_once("->").map_or((&bare[..], None), |(inputs, result)| (inputs, Some(result)));
        let letters = |text: &str| -> Result<Vec<u8>> {
            let letters = text.as_bytes().to_vec();
            if !letters.iter().all(u8::is_ascii_alphabetic) {
                return Err(wrong("other than letters (an ellipsis) is not represented"));
            }
            match letters.iter().enumerate().any(|(i, letter)| letters[..i].contains(letter)) {
                true => Err(wrong("a letter that occurs twice in one operand is not represented")),
                false => Ok(letters),
            }
        };
        let named = inputs.split(',').map(letters).collect::<Result<Vec<_>>>()?;
        if named.len() != operands.len() || named.len() > 2 {
            return Err(wrong("other than one or two operands, one for each part, are not represented"));
        }
        let mut all: Vec<u8> = named.iter().flatten().copied().collect();
        all.sort_unstable();
        let once = |letter: &u8| all.iter().filter(|other| *other == letter).count() == 1;
        let result = match result {
            Some(text) => letters(text)?,
            // Without a result it is made of the letters that occur once.
            None => all.iter().copied().filter(once).collect(),
        };
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

    /// Returns the number of letters that are summed over.
    fn summed(&self) -> usize {
        self.order.len() - self.result.len()
    }

    /// Returns a view of an operand with all dimensions in order; those that it lacks have size 1.
    fn ordered(&self, x: &Tensor, letters: &[u8]) -> Result<Tensor> {
        let mut x = x.clone();
        let mut axes = Dims::new();
        for letter in &self.order {
            axes.push(match letters.iter().position(|other| other == letter) {
                Some(axis) => axis,
                None => {
                    x = unsqueeze(&x, x.rank())?;
                    x.rank() - 1
                }
            });
        }
        permute(&x, &axes)
    }

    fn product(&self, a: &Tensor, b: &Tensor) -> Result<Tensor> {
        let fits = |(&a, &b): (&usize, &usize)| a == b || a == 1 || b == 1;
        if !a.dims().iter().zip(b.dims()).all(fits) {
            return Err(Error::shape("einsum", format!("{:?} and {:?}", a.dims(), b.dims())));
        }
        // A summed dimension that only one operand has is summed before the product.
        let alone = |x: &Tensor, other: &Tensor| -> Vec<usize> {
            (self.result.len()..self.order.len()).filter(|&i| x.dims()[i] != 1 && other.dims()[i] == 1).collect()
        };
        let (of_a, of_b) = (alone(a, b), alone(b, a));
        let summed = |x: &Tensor, axes: &[usize]| if axes.is_empty() { Ok(x.clone()) } else { sum_axes(x, axes, true) };
        let (a, b) = (&summed(a, &of_a)?, &summed(b, &of_b)?);
        let is_common = |i: usize| i >= self.result.len() && a.dims()[i] != 1;
        let y = if (0..self.order.len()).any(is_common) { self.contracted(a, b, is_common)? } else { mul(a, b)? };
        if self.summed() == 0 {
            return Ok(y);
        }
        let dims: Dims = y.dims()[..self.result.len()].into();
        view(&y, &dims)
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

fn dims_of(operands: &[&Tensor]) -> Vec<Vec<usize>> {
    operands.iter().map(|x| x.dims().to_vec()).collect()
}
