//! The ledger of a training run must be true, and the same on every device.

use std::sync::Arc;

use backend_cpu::Cpu;
use conformance::Reference;
use lab_base::Error;
use memcore::backend::Backend;
use memcore::memory::{Category, Event, Usage};

use super::cases::{Case, all, is_deep, meta, nothing_is_left, torch_device, train, trainer};

/// The events of a whole run, from the first parameter to the last drop.
fn events(case: &Case, backend: Arc<dyn Backend>) -> lab_base::Result<Vec<Event>> {
    let device = torch_device(backend);
    let mut trainer = trainer(case, &device)?;
    train(case, &mut trainer)?;
    trainer.finish(Some("end"));
    Ok(device.with_ledger(|ledger| ledger.history().to_vec()))
}

/// Fails at the first event in which two devices differ. Returns the kernel that one of them does not have.
#[track_caller]
fn same_events(case: &Case, a: Arc<dyn Backend>, b: Arc<dyn Backend>) -> Option<&'static str> {
    let names = [a.name().to_string(), b.name().to_string()];
    let (a, b) = match (events(case, a), events(case, b)) {
        (Ok(a), Ok(b)) => (a, b),
        (Err(Error::Core(memcore::Error::Unsupported { kernel, .. })), _)
        | (_, Err(Error::Core(memcore::Error::Unsupported { kernel, .. }))) => return Some(kernel),
        (Err(error), _) | (_, Err(error)) => panic!("{}: {error}", case.name),
    };
    for (i, (x, y)) in a.iter().zip(&b).enumerate() {
        assert_eq!(x, y, "{}: event {i} on {} and on {}", case.name, names[0], names[1]);
    }
    assert_eq!(a.len(), b.len(), "{}: events on {names:?}", case.name);
    None
}

#[test]
fn under_one_profile_a_device_with_values_and_one_without_give_the_same_events() {
    // Deep networks are tested only on the CPU, below.
    for mut case in all().into_iter().filter(|case| !is_deep(case.architecture.name())) {
        case.settings.steps = 2;
        let missing = same_events(&case, Arc::new(meta()), Arc::new(Reference::default()));
        assert_eq!(missing, None, "{}", case.name);
    }
}

#[test]
fn the_cpu_gives_the_same_events() {
    for mut case in all() {
        case.settings.steps = 2;
        let missing = same_events(&case, Arc::new(meta()), Arc::new(Cpu::new().unwrap()));
        // Fused attention is optional for a backend.
        assert!(matches!(missing, None | Some("attention")), "{}: no kernel {missing:?}", case.name);
    }
}

#[test]
fn everything_that_was_taken_is_given_back() {
    for case in all() {
        let device = torch_device(Arc::new(meta()));
        let mut trainer = trainer(&case, &device).unwrap();
        train(&case, &mut trainer).unwrap();
        assert!(device.stats().allocated_bytes.all.current > device.profile().gemm_workspace_bytes, "{}", case.name);
        trainer.finish(None);
        nothing_is_left(&case.name, &device);
    }
}

#[test]
fn the_rings_are_nested_at_every_row() {
    for case in all() {
        let device = torch_device(Arc::new(meta()));
        let mut trainer = trainer(&case, &device).unwrap();
        for step in 0..case.settings.steps {
            trainer.step(step).unwrap();
            assert!(device.rings().nested(), "{}: {:?}", case.name, device.rings());
        }
        let rows = trainer.finish(Some("end"));
        assert!(rows.len() > 6 * case.settings.steps, "{}", case.name);
        for row in rows {
            let within = row.requested <= row.active && row.allocated <= row.active && row.active <= row.reserved;
            let peaks = row.allocated <= row.max_allocated && row.reserved <= row.max_reserved;
            let phase = row.allocated <= row.phase_peak_allocated && row.phase_peak_allocated <= row.max_allocated;
            assert!(within && peaks && phase, "{}: {row:?}", case.name);
            assert!(row.inactive_split <= row.reserved - row.active, "{}: {row:?}", case.name);
        }
    }
}

#[test]
fn the_ledger_is_a_fold_over_its_events_and_adds_up_after_each() {
    for case in all() {
        let device = torch_device(Arc::new(meta()));
        let mut trainer = trainer(&case, &device).unwrap();
        train(&case, &mut trainer).unwrap();
        let history = device.with_ledger(|ledger| {
            assert_eq!(ledger.replay().as_ref(), Some(ledger.usage()), "{}", case.name);
            ledger.history().to_vec()
        });
        let (mut usage, mut seen) = (Usage::default(), [false; Category::COUNT]);
        for (i, event) in history.iter().enumerate() {
            usage.apply(event);
            let categories: u64 = usage.by_category().iter().sum();
            assert_eq!(categories, usage.allocated_bytes(), "{}: after event {i}, {event:?}", case.name);
            let scopes: u64 = usage.scopes().map(|(_, bytes)| bytes.iter().sum::<u64>()).sum();
            assert_eq!(scopes, usage.allocated_bytes(), "{}: scopes after event {i}, {event:?}", case.name);
            assert!(usage.allocated_bytes() <= usage.peak_bytes(), "{}: event {i}", case.name);
            for (category, bytes) in usage.by_category().iter().enumerate() {
                seen[category] |= *bytes > 0;
            }
        }
        let peak = usage.at_peak();
        assert_eq!(peak.by_category.iter().sum::<u64>(), peak.allocated_bytes, "{}", case.name);
        assert_eq!(peak.allocated_bytes, device.stats().allocated_bytes.all.peak, "{}", case.name);
        for category in [Category::Parameter, Category::Gradient, Category::Activation, Category::Input] {
            assert!(seen[category as usize], "{}: nothing was ever {category:?}", case.name);
        }
        let adam = case.settings.optimizer.kind != lab_training::OptimizerKind::Sgd;
        assert_eq!(seen[Category::OptimizerState as usize], adam, "{}: optimizer state", case.name);
    }
}
