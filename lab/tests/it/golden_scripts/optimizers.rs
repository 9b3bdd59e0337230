//! Group h: all optimizers, one after the other on one device, and the clipping of gradients.

use lab::record::Row;
use memcore::nn::Parameter;
use memcore::nn::{Activation, Init, Linear, Module, Sequential};
use memcore::optim::{
    Adadelta, AdadeltaOptions, Adagrad, AdagradOptions, Adam, AdamOptions, Adamax, AdamaxOptions, Asgd, AsgdOptions,
    Implementation, NAdam, NAdamOptions, Optimizer, RAdam, RAdamOptions, RmsProp, RmsPropOptions, Rprop, RpropOptions,
    Sgd, SgdOptions, clip_grad_norm_with, clip_grad_value,
};
use memcore::{Array, DType, Device, Result, Tensor, ops};

use super::compare::{check, check_part};
use super::recording::Recording;

/// Makes an optimizer.
type Make = fn(Vec<Parameter>) -> Result<Box<dyn Optimizer>>;

macro_rules! variants {
    ($($title:literal => $kind:ident($options:expr);)*) => {
        [$(($title, (|p| Ok(Box::new($kind::new(p, $options)?) as Box<dyn Optimizer>)) as Make)),*]
    };
}

fn sgd() -> SgdOptions {
    SgdOptions { lr: 0.1, ..SgdOptions::default() }
}

fn variants() -> [(&'static str, Make); 20] {
    variants! {
        "SGD{'lr': 0.1}" => Sgd(sgd());
        "SGD{'lr': 0.1, 'momentum': 0.9}" => Sgd(SgdOptions { momentum: 0.9, ..sgd() });
        "SGD{'lr': 0.1, 'weight_decay': 0.1}" => Sgd(SgdOptions { weight_decay: 0.1, ..sgd() });
        "SGD{'lr': 0.1, 'maximize': True}" => Sgd(SgdOptions { maximize: true, ..sgd() });
        "SGD{'lr': 0.1, 'momentum': 0.9, 'fused': True}"
            => Sgd(SgdOptions { momentum: 0.9, implementation: Implementation::Fused, ..sgd() });
        "Adam{}" => Adam(AdamOptions::adam());
        "Adam{'weight_decay': 0.1}" => Adam(AdamOptions { weight_decay: 0.1, ..AdamOptions::adam() });
        "Adam{'fused': True}" => Adam(AdamOptions { implementation: Implementation::Fused, ..AdamOptions::adam() });
        "AdamW{}" => Adam(AdamOptions::adamw());
        "AdamW{'foreach': False}" => Adam(AdamOptions { implementation: Implementation::Loop, ..AdamOptions::adamw() });
        "AdamW{'amsgrad': True}" => Adam(AdamOptions { amsgrad: true, ..AdamOptions::adamw() });
        "RMSprop{}" => RmsProp(RmsPropOptions::default());
        "RMSprop{'momentum': 0.9, 'centered': True}"
            => RmsProp(RmsPropOptions { momentum: 0.9, centered: true, ..RmsPropOptions::default() });
        "Adagrad{}" => Adagrad(AdagradOptions::default());
        "Adadelta{}" => Adadelta(AdadeltaOptions::default());
        "NAdam{}" => NAdam(NAdamOptions::default());
        "RAdam{}" => RAdam(RAdamOptions::default());
        "Adamax{}" => Adamax(AdamaxOptions::default());
        "ASGD{}" => Asgd(AsgdOptions::default());
        "Rprop{}" => Rprop(RpropOptions::default());
    }
}

/// A network with gradients, after one pass over random values.
fn with_gradients(device: &Device, hidden: usize) -> Result<(Vec<Parameter>, Sequential)> {
    let init = Init::new(device, DType::F32, 0);
    let mut layers = Sequential::new();
    for i in 0..hidden {
        layers.push(Linear::new(&init.at(2 * i), if i == 0 { 256 } else { 512 }, 512, true)?);
        layers.push(Activation::new(&init.at(2 * i + 1), ops::relu));
    }
    layers.push(Linear::new(&init.at(2 * hidden), 512, 10, true)?);
    Ok((init.parameters(), layers))
}

fn backward(device: &Device, layers: &Sequential) -> Result<Tensor> {
    let x = Tensor::from_array(Array::uniform(device, &[64, 256], DType::F32, -1.0, 1.0)?);
    let y = layers.forward(&x)?;
    let sum = ops::sum(&y)?;
    drop(y);
    sum.backward(false)?;
    drop(sum);
    Ok(x)
}

/// One variant after the other, up to the `last`-th.
fn run_up_to(last: usize, device: &Device) -> Vec<Row> {
    let mut rows = Vec::new();
    for (title, make) in variants().into_iter().take(last + 1) {
        let (parameters, layers) = with_gradients(device, 2).unwrap();
        drop(backward(device, &layers).unwrap());
        device.empty_cache();
        let mut optimizer = make(parameters).unwrap();
        rows.push(Row::take(device, format!("{title}.grads")));
        for step in ["step1", "step2"] {
            optimizer.step().unwrap();
            rows.push(Row::take(device, format!("{title}.{step}")));
        }
        drop(layers);
        drop(optimizer);
        rows.push(Row::take(device, format!("{title}.deleted")));
    }
    rows
}

/// A test for each variant, of its own rows and events.
mod h_optimizers {
    macro_rules! tests {
        ($($place:literal $name:ident)*) => {
            $(#[test]
            fn $name() {
                let (title, _) = super::variants()[$place];
                super::check_part("h_optimizers", title, |device| super::run_up_to($place, device));
            })*

            #[test]
            fn every_variant_has_a_test() {
                let places = [$($place),*];
                assert!(places.into_iter().eq(0..super::variants().len()), "{places:?}");
            }
        };
    }

    tests! {
        0 sgd
        1 sgd_momentum
        2 sgd_weight_decay
        3 sgd_maximize
        4 sgd_momentum_fused
        5 adam
        6 adam_weight_decay
        7 adam_fused
        8 adamw
        9 adamw_loop
        10 adamw_amsgrad
        11 rmsprop
        12 rmsprop_momentum_centered
        13 adagrad
        14 adadelta
        15 nadam
        16 radam
        17 adamax
        18 asgd
        19 rprop
    }
}

#[test]
fn every_recorded_optimizer_is_compared() {
    let mut titles: Vec<String> = Vec::new();
    for row in Recording::load("h_optimizers").rows() {
        let title = row.label.rsplit_once('.').map_or("end", |(title, _)| title).to_string();
        if title != "end" && titles.last() != Some(&title) {
            titles.push(title);
        }
    }
    let here: Vec<&str> = variants().iter().map(|(title, _)| *title).collect();
    assert_eq!(titles, here);
}

#[test]
fn h_clip_grad() {
    check("h_clip_grad", |device| {
        let (parameters, layers) = with_gradients(device, 3).unwrap();
        let x = backward(device, &layers).unwrap();
        let mut rows = vec![Row::take(device, "grads")];
        for (form, implementation) in
            [("None", Implementation::default()), ("True", Implementation::Foreach), ("False", Implementation::Loop)]
        {
            let norm = clip_grad_norm_with(&parameters, 1.0, implementation).unwrap();
            rows.push(Row::take(device, format!("clip foreach={form}")));
            drop(norm);
        }
        clip_grad_value(&parameters, 1.0).unwrap();
        rows.push(Row::take(device, "clip_value"));
        // The function returns: its variables go in the order of their first assignment.
        drop(parameters);
        drop(layers);
        drop(x);
        rows
    });
}
