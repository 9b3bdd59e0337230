//! Checks the largest fitting sizes and the formula of the peak against runs of every size.

use std::ops::ControlFlow;
use std::sync::Arc;

use lab_analysis::fit::{Law, Room, largest};
use lab_base::{Error, Result};
use lab_models::{ModelOptions, architecture};
use lab_training::{OptimizerKind, OptimizerSettings, RunSettings, Source, train};
use memcore::backend::{DeviceProfile, Meta};
use memcore::{Device, Profile};

const MIB: u64 = 1 << 20;

/// Trains a network for three steps in a dry run.
fn dry(name: &str, options: &ModelOptions, batch: usize, total_bytes: Option<u64>) -> Result<Device> {
    let mut card = DeviceProfile::default();
    card.total_bytes = total_bytes.unwrap_or(card.total_bytes);
    let builder = Device::builder(Arc::new(Meta::new(card))).profile(Profile::torch_2_11(90));
    let device = builder.history(total_bytes.is_none()).build();
    let settings = RunSettings::new(batch, 3, OptimizerSettings::new(OptimizerKind::Adam, 1e-3));
    let source = Source::Synthetic { seed: 0 };
    train(&*architecture(name, options)?, &device, &settings, source, &mut |_| ControlFlow::Continue(()))?;
    Ok(device)
}

fn requested_peak(device: &Device) -> u64 {
    let mut live = std::collections::HashMap::new();
    let (mut now, mut peak) = (0u64, 0u64);
    device.with_ledger(|ledger| {
        for event in ledger.history() {
            match *event {
                memcore::memory::Event::Alloc { id, requested_bytes, .. } => {
                    live.insert(id, requested_bytes);
                    now += requested_bytes;
                    peak = peak.max(now);
                }
                memcore::memory::Event::Free { id, .. } => now -= live.remove(&id).unwrap_or(0),
                _ => {}
            }
        }
    });
    peak
}

#[test]
fn the_law_of_a_cnn_gives_the_peak_of_every_batch() {
    let options = ModelOptions::default();
    let run = |batch: usize, _: Room| dry("simple-cnn", &options, batch, None);
    let law = Law::from_run(&run, 1, 200).unwrap();
    assert!(law.complete);
    assert!(law.runs <= 32, "{} runs", law.runs);
    assert!(law.pieces.windows(2).all(|pair| pair[0].to + 1 == pair[1].from), "{:?}", law.pieces);
    assert_eq!((law.pieces[0].from, law.pieces.last().unwrap().to), (1, 200));
    for batch in 1..=200 {
        let measured = requested_peak(&run(batch, Room::Endless).unwrap());
        assert_eq!(law.at(batch), Some(measured), "batch {batch}: {:?}", law.pieces);
    }
    assert_eq!(law.at(201), None);
}

#[test]
fn a_sequence_gives_a_law_with_a_square() {
    let options = |length| ModelOptions {
        layers: Some(2),
        heads: Some(4),
        width: Some(64),
        vocabulary: Some(96),
        sequence: Some(length),
        ..ModelOptions::default()
    };
    let run = |length: usize, _: Room| dry("gpt", &options(length), 2, None);
    let law = Law::from_run(&run, 1, 160).unwrap();
    assert!(law.complete);
    assert!(law.pieces.last().unwrap().square > 0, "{:?}", law.pieces);
    for length in (1..=160).step_by(7) {
        assert_eq!(law.at(length), Some(requested_peak(&run(length, Room::Endless).unwrap())), "{length} tokens");
    }
}

#[test]
fn the_largest_batch_fits_and_the_next_one_does_not() {
    let options = ModelOptions::default();
    for budget in [90 * MIB, 111 * MIB, 200 * MIB, 333 * MIB] {
        let run =
            |batch: usize, room: Room| dry("simple-cnn", &options, batch, (room == Room::Budget).then_some(budget));
        let fit = largest(&run, budget, 1 << 16).unwrap();
        let best = fit.largest.unwrap();
        assert!(!fit.at_maximum);
        assert!(fit.run(best).unwrap().fits() && !fit.run(best + 1).unwrap().fits(), "{budget}: {best}");
        assert!(fit.run(best).unwrap().reserved_bytes.unwrap() <= budget);
        // By trying all sizes.
        let tried = (1..=best + 40).filter(|&batch| run(batch, Room::Budget).is_ok()).max();
        assert_eq!(tried, Some(best), "{budget}");
        assert!(fit.tried.len() < 60, "{} runs", fit.tried.len());
    }
}

#[test]
fn nothing_fits_into_too_little_and_everything_into_enough() {
    let within = |budget: u64| {
        move |batch: usize, room: Room| {
            dry("simple-cnn", &ModelOptions::default(), batch, (room == Room::Budget).then_some(budget))
        }
    };
    let fit = largest(&within(MIB), MIB, 100).unwrap();
    assert_eq!((fit.largest, fit.tried.len()), (None, 1));
    assert!(fit.run(1).unwrap().out_of_memory.is_some());
    let fit = largest(&within(1 << 40), 1 << 40, 100).unwrap();
    assert_eq!((fit.largest, fit.at_maximum), (Some(100), true));
    let broken = |_: usize, _: Room| -> Result<Device> { Err(Error::usage("--batch", "no")) };
    assert!(matches!(largest(&broken, MIB, 100), Err(Error::Usage { .. })));
}
