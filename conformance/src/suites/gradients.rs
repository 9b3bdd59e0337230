//! Core's autograd on the device, operator by operator, against f64 on the [`Reference`]. Central differences test here
//! that the f64 gradients are right.

use std::sync::Arc;

use libtest_mimic::Trial;
use memcore::backend::Backend;
use memcore::{Array, DType, Error, Tensor};

use super::trial::trial;
use crate::data::{Data, seed};
use crate::device::Device;
use crate::execute::Verdict;
use crate::operators::{Argument, OperatorCase, cases};
use crate::reference::Reference;
use crate::tolerance::Tolerance;

/// Tolerance of f32 against f64 for a forward and a backward pass of a few operators. Their sums have at most some
/// hundred terms of the size of the largest result. A gradient that is a difference of such terms has their error.
fn tolerance(largest: f64) -> Tolerance {
    Tolerance::function(
        4.0 * largest.max(1.0),
        "a forward and a backward pass in f32: sums of up to 200 terms, exp and division",
    )
}

pub(super) fn trials(device: &Arc<Device>) -> Vec<Trial> {
    let one = |case: &OperatorCase| {
        let case = *case;
        trial(format!("gradients::{}", case.name), device, move |device| compare(&case, device))
    };
    cases().map(one).collect()
}

/// A result, and the gradient of each argument.
struct Outcome {
    result: Vec<f64>,
    gradients: Vec<Vec<f64>>,
}

/// Values of an argument; f32 represents them exactly.
fn values(case: &str, index: usize, argument: &Argument) -> Vec<f64> {
    drawn(&format!("{case} {index}"), argument.dims.iter().product(), Data::Range(argument.low, argument.high))
}

fn drawn(name: &str, count: usize, data: Data) -> Vec<f64> {
    let mut values = Vec::with_capacity(count);
    data.each_element(DType::F32, count, seed(name), |_, bytes| {
        let mut word = [0; 4];
        word.copy_from_slice(bytes);
        values.push(f32::from_le_bytes(word).into());
    });
    values
}

/// Weights of a result's elements in the scalar that is differentiated.
fn weights(case: &str, count: usize) -> Vec<f64> {
    drawn(&format!("{case} weights"), count, Data::Range(-1.0, 1.0))
}

fn array(device: &memcore::Device, dims: &[usize], dtype: DType, values: &[f64]) -> memcore::Result<Array> {
    if dtype == DType::F64 {
        return Array::from_slice(device, dims, values);
    }
    let array = Array::from_slice(device, dims, &values.iter().map(|&v| v as f32).collect::<Vec<_>>())?;
    if dtype == DType::F32 { Ok(array) } else { array.cast(dtype) }
}

/// Runs forward and backward of a case on these values of its arguments.
fn run(case: &OperatorCase, device: &memcore::Device, dtype: DType, values: &[Vec<f64>]) -> memcore::Result<Outcome> {
    device.set_seed(7);
    let leaf =
        |(argument, values): (&Argument, &Vec<f64>)| Ok(Tensor::leaf(array(device, argument.dims, dtype, values)?));
    let leaves = case.arguments.iter().zip(values).map(leaf).collect::<memcore::Result<Vec<Tensor>>>()?;
    let result = (case.call)(&leaves)?;
    let weights = weights(case.name, result.numel());
    result.backward_with(array(device, result.dims(), dtype, &weights)?, false)?;
    let gradient = |leaf: &Tensor| match leaf.grad() {
        Some(gradient) if gradient.dims() == leaf.dims() => gradient.to_f64(),
        other => {
            let problem = format!("gradient {:?} of an argument {:?}", other.map(|g| g.dims().to_vec()), leaf.dims());
            Err(Error::shape("gradients", problem))
        }
    };
    let gradients = leaves.iter().map(gradient).collect::<memcore::Result<Vec<_>>>()?;
    Ok(Outcome { result: result.array().to_f64()?, gradients })
}

fn all_values(case: &OperatorCase) -> Vec<Vec<f64>> {
    case.arguments.iter().enumerate().map(|(i, argument)| values(case.name, i, argument)).collect()
}

fn on(backend: Arc<dyn Backend>) -> memcore::Device {
    memcore::Device::builder(backend).build()
}

fn compare(case: &OperatorCase, device: &Device) -> Result<Verdict, String> {
    let values = all_values(case);
    let wanted =
        run(case, &on(Arc::new(Reference::default())), DType::F64, &values).map_err(|e| format!("in f64: {e}"))?;
    let got = match run(case, &on(device.shared()), DType::F32, &values) {
        Ok(got) => got,
        Err(error @ Error::Unsupported { .. }) => return Ok(Verdict::Skipped(error.to_string())),
        Err(error) => return Err(error.to_string()),
    };
    near("the result", &wanted.result, &got.result)?;
    for (i, (wanted, got)) in wanted.gradients.iter().zip(&got.gradients).enumerate() {
        near(&format!("the gradient of argument {i}"), wanted, got)?;
    }
    Ok(Verdict::Passed)
}

fn near(what: &str, wanted: &[f64], got: &[f64]) -> Result<(), String> {
    let tolerance = tolerance(wanted.iter().fold(0.0, |largest, v| v.abs().max(largest)));
    if wanted.len() != got.len() {
        return Err(format!("{what} has {} elements instead of {}", got.len(), wanted.len()));
    }
    for (i, (&want, &got)) in wanted.iter().zip(got).enumerate() {
        if !tolerance.accepts(DType::F32, want, got) {
            let allowed = tolerance.allowed(DType::F32, want);
            return Err(format!("{what}, element {i}: {got} instead of {want} (± {allowed:e}: {})", tolerance.reason));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use memcore::Profile;
    use memcore::profile::Convolution;

    use super::*;

    /// Distance to both sides. The error of the method is of the order of its square, that of the arithmetic of the
    /// order of ε divided by it.
    const STEP: f64 = 1e-5;

    fn objective(case: &OperatorCase, device: &memcore::Device, values: &[Vec<f64>]) -> f64 {
        let result = run(case, device, DType::F64, values).unwrap().result;
        weights(case.name, result.len()).iter().zip(&result).map(|(w, y)| w * y).sum()
    }

    /// The elements at which a gradient differs from the central difference.
    fn differences(case: &OperatorCase) -> Vec<String> {
        let device = on(Arc::new(Reference::default()));
        let values = all_values(case);
        let outcome = match run(case, &device, DType::F64, &values) {
            Ok(outcome) => outcome,
            Err(error) => return vec![format!("{}: {error}", case.name)],
        };
        let mut wrong = Vec::new();
        for (i, gradient) in outcome.gradients.iter().enumerate() {
            for (j, &got) in gradient.iter().enumerate() {
                let moved = |by: f64| {
                    let mut values = values.clone();
                    values[i][j] += by;
                    objective(case, &device, &values)
                };
                let want = (moved(STEP) - moved(-STEP)) / (2.0 * STEP);
                if (got - want).abs() > 1e-6 * want.abs().max(got.abs()) + 1e-8 {
                    wrong.push(format!("{}: argument {i}, element {j}: {got} instead of {want}", case.name));
                }
            }
        }
        wrong
    }

    #[test]
    fn in_f64_every_gradient_is_that_of_central_differences() {
        let wrong: Vec<String> = cases().flat_map(differences).collect();
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    }

    /// Profiles decide about memory: which temporaries exist, and which of PyTorch's kernels is imitated. For releases
    /// between the first and the last that differ in it, one card is enough, plus the cards that only they have.
    #[test]
    fn under_every_profile_results_and_gradients_are_the_same() {
        let with_cudnn = |profile| Profile { convolution: Convolution::Cudnn { workspace_bytes: 4096 }, ..profile };
        let every_card = ["native", "torch-2.11-", "torch-2.15-"];
        let tried = |name: &&&str| {
            every_card.iter().any(|part| name.starts_with(part))
                || ["-sm90", "2.10-sm70", "-sm60"].iter().any(|end| name.ends_with(end))
        };
        let named = Profile::NAMES.iter().filter(tried).map(|name| Profile::named(name).unwrap());
        let profiles: Vec<Profile> = named.flat_map(|profile| [profile.clone(), with_cudnn(profile)]).collect();
        // Relative to the largest element: one rounding more or less on the way.
        for (dtype, share) in [(DType::F32, 1e-5), (DType::F16, 4e-3), (DType::BF16, 3e-2)] {
            for case in cases() {
                let values = all_values(case);
                let of = |profile: &Profile| {
                    let backend = Arc::new(Reference::default());
                    run(case, &memcore::Device::builder(backend).profile(profile.clone()).build(), dtype, &values)
                };
                let plain = of(&Profile::native()).map_err(|error| error.to_string());
                for profile in &profiles {
                    let under = format!("{} in {dtype:?} under {}", case.name, profile.name);
                    match (&plain, of(profile).map_err(|error| error.to_string())) {
                        (Ok(plain), Ok(got)) => assert_alike(&under, plain, &got, share),
                        (Err(_), Err(_)) => {}
                        // A refusal by name is not an error.
                        (_, Err(error)) if error.contains("not support") => {}
                        (_, Err(error)) => panic!("{under}: {error}"),
                        (Err(error), Ok(_)) => panic!("{under} it works, natively: {error}"),
                    }
                }
            }
        }
    }

    fn assert_alike(what: &str, plain: &Outcome, got: &Outcome, share: f64) {
        let all = |outcome: &Outcome| {
            std::iter::once(&outcome.result).chain(&outcome.gradients).cloned().collect::<Vec<Vec<f64>>>()
        };
        for (i, (want, got)) in all(plain).iter().zip(all(got)).enumerate() {
            let largest = want.iter().fold(0.0, |largest: f64, v| largest.max(v.abs()));
            for (want, got) in want.iter().zip(got) {
                assert!((want - got).abs() <= share * largest.max(1.0), "{what}, {i}: {got} instead of {want}");
            }
        }
    }

    #[test]
    fn a_wrong_gradient_is_found() {
        // Its history contains only the first half.
        let case = OperatorCase {
            name: "wrong",
            arguments: &[Argument { dims: &[4], low: 0.5, high: 1.0 }],
            call: |x| memcore::ops::mul(&x[0], &x[0].detach()),
        };
        assert_eq!(differences(&case).len(), 4);
    }
}
