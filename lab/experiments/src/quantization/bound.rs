//! Bound on the error of an output, from the weights alone.

use super::subject::HostLayer;

/// Additional error of float32 sums of a few hundred terms: relative and absolute.
const ROUNDING: (f64, f64) = (1e-3, 1e-4);

/// Number of outputs that differ by more than half a step in each weight can explain. `None` without values.
///
/// A weight in int8 is off by at most half a step, `s/2` with `s = max|row|/127`. If the inputs `a` have errors `e`, an output is off by at
/// most `Σ (|w| + s/2)·e + |a|·s/2` over the inputs. A ReLU makes no error larger.
pub(super) fn beyond(layers: &[HostLayer], inputs: &[f32], float: &[f32], int8: &[f32]) -> Option<u64> {
    let features = layers.first()?.inputs;
    if float.is_empty() || int8.len() != float.len() {
        return None;
    }
    let outputs = layers.last()?.outputs;
    let mut beyond = 0;
    for (i, example) in inputs.chunks(features).enumerate() {
        let bounds = bounds(layers, example);
        let row = i * outputs..(i + 1) * outputs;
        let pairs = float.get(row.clone())?.iter().zip(int8.get(row)?);
        for ((a, b), bound) in pairs.zip(bounds) {
            let allowed = bound * (1.0 + ROUNDING.0) + ROUNDING.0 * f64::from(a.abs()) + ROUNDING.1;
            beyond += u64::from(f64::from((a - b).abs()) > allowed);
        }
    }
    Some(beyond)
}

fn bounds(layers: &[HostLayer], example: &[f32]) -> Vec<f64> {
    let mut values: Vec<f64> = example.iter().copied().map(f64::from).collect();
    let mut errors = vec![0.0; values.len()];
    for (number, layer) in layers.iter().enumerate() {
        let (mut next, mut next_errors) = (Vec::new(), Vec::new());
        for (row, bias) in layer.weight.chunks(layer.inputs).zip(&layer.bias) {
            let largest = row.iter().fold(0.0f32, |most, w| most.max(w.abs()));
            let half = f64::from(largest) / 127.0 / 2.0;
            let (mut value, mut error) = (f64::from(*bias), 0.0);
            for ((w, a), e) in row.iter().zip(&values).zip(&errors) {
                let w = f64::from(*w);
                value += w * a;
                error += (w.abs() + half) * e + a.abs() * half;
            }
            next.push(if number + 1 < layers.len() { value.max(0.0) } else { value });
            next_errors.push(error);
        }
        (values, errors) = (next, next_errors);
    }
    errors
}
