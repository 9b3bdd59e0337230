//! Verdicts of the experiments at other than their default sizes: they do not depend on rounding, alternation or a missing cache.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use lab_experiments::{Outcome, Setup, Verdict, by_name};
use memcore::backend::{DeviceProfile, Meta};
use memcore::memory::{Allocator, AllocatorConfig, Caching, Direct};
use memcore::{Device, Profile};

const PROFILES: [&str; 2] = ["native", "torch-2.11-sm90"];

fn run(name: &str, open: &dyn Fn() -> Device, sizes: &[(&str, &[usize])]) -> Outcome {
    let sizes: BTreeMap<String, Vec<usize>> = sizes.iter().map(|(k, v)| (k.to_string(), v.to_vec())).collect();
    let open = || Ok(open());
    let setup =
        Setup { open: &open, places: &[], model: None, sizes, seed: 0, progress: &|_, _| ControlFlow::Continue(()) };
    by_name(name).unwrap().ask(&setup).unwrap()
}

fn dry(profile: &str, direct: bool) -> Device {
    let meta = Arc::new(Meta::new(DeviceProfile::default()));
    let allocator: Box<dyn Allocator> = match direct {
        true => Box::new(Direct::new(meta.clone())),
        false => Box::new(Caching::new(meta.clone(), AllocatorConfig::default()).unwrap()),
    };
    Device::builder(meta).profile(Profile::named(profile).unwrap()).allocator(allocator).build()
}

fn on_paper(name: &str, profile: &str, sizes: &[(&str, &[usize])]) -> Outcome {
    let outcome = run(name, &|| dry(profile, false), sizes);
    assert_eq!(outcome.unexplained(), [], "{name} {sizes:?} under {profile}");
    outcome
}

fn verdicts(outcome: &Outcome) -> Vec<Verdict> {
    outcome.claims.iter().map(|claim| claim.verdict).collect()
}

#[test]
fn a_peak_that_alternates_is_steady() {
    for profile in PROFILES {
        for batch in [100, 128, 130, 256] {
            let mut alternates = false;
            for steps in [6, 7, 9, 20] {
                let outcome = on_paper("steady-state", profile, &[("batch", &[batch]), ("steps", &[steps])]);
                assert_eq!(verdicts(&outcome), [Verdict::Holds; 2], "batch {batch}, {steps} steps, {profile}");
                let text = &outcome.claims[0].condition;
                alternates |= text.contains("every second step is equal in every figure");
                assert!(!text.contains(&format!("steps {0} to {0}", steps - 1)), "a step equals itself: {text}");
            }
            assert!(alternates || batch != 128, "the article's batch alternates");
            // With fewer steps no pair of them repeats: the verdict claims neither growth nor a steady state.
            for steps in [4, 5] {
                let few = on_paper("steady-state", profile, &[("batch", &[batch]), ("steps", &[steps])]);
                assert!(!verdicts(&few).contains(&Verdict::Fails), "batch {batch}, {steps} steps, {profile}");
            }
        }
        let few = on_paper("steady-state", profile, &[("batch", &[128]), ("steps", &[4])]);
        assert_eq!(verdicts(&few)[1], Verdict::NotTested, "{profile}: {}", few.claims[1].condition);
    }
}

#[test]
fn rounding_of_blocks_decides_no_verdict() {
    use Verdict::{Depends, Holds};
    for profile in PROFILES {
        let doubled = on_paper("network-size", profile, &[("batch", &[100, 200])]);
        assert_eq!(verdicts(&doubled)[..3], [Holds; 3], "{profile}: {}", doubled.claims[2].condition);
        let text = &doubled.claims[2].condition;
        assert!(text.contains("2.00-fold in bytes asked for") && text.contains("1.74-fold in blocks"), "{text}");
        let narrow = on_paper("equation", profile, &[("width", &[4])]);
        assert_eq!(verdicts(&narrow)[..4], [Holds, Depends, Holds, Depends], "{profile}");
        let text = &narrow.claims[0].condition;
        assert!(text.contains("4.45 KiB (4552) asked for, 4.45 KiB (4552) by the formula"), "{text}");
        // Above 1 MiB a block may be larger than the request.
        let wide = on_paper("optimizer", profile, &[("width", &[600])]);
        assert_eq!(verdicts(&wide)[0], Holds, "{profile}: {}", wide.claims[0].condition);
    }
}

#[test]
fn what_the_cache_keeps_is_not_said_of_an_allocator_without_one() {
    let direct = |name: &str| run(name, &|| dry("torch-2.11-sm90", true), &[]);
    let first = &direct("batch-size").claims[0].condition;
    assert!(first.contains("this allocator keeps no cache") && !first.contains("the earlier one's cache"), "{first}");
    let given = &direct("release").claims[1].condition;
    assert!(!given.contains("gives nothing"), "{given}");
    let cached = &run("batch-size", &|| dry("torch-2.11-sm90", false), &[]).claims[0].condition;
    assert!(cached.contains("the earlier one's cache"), "{cached}");
}

#[test]
fn what_needs_values_is_not_tested_without_them() {
    use Verdict::{Depends, NotTested};
    let untested = |name: &str| verdicts(&on_paper(name, "torch-2.11-sm90", &[]));
    assert_eq!(untested("accumulation"), [NotTested, Depends, NotTested, NotTested]);
    assert_eq!(untested("precision"), [Depends, Depends, NotTested, NotTested]);
    assert_eq!(serde_json::to_value(NotTested).unwrap(), "not-tested");
}

#[test]
fn every_sentence_of_the_articles_that_can_be_measured_has_a_verdict() {
    use Verdict::{Depends, Fails, Holds};
    for profile in PROFILES {
        let of = |name: &str, text: &str| {
            let outcome = on_paper(name, profile, &[]);
            let judged = outcome.claims.iter().find(|claim| claim.claim.text == text).cloned();
            judged.unwrap_or_else(|| panic!("{name} does not judge {text:?}"))
        };
        let majority = of("network-size", "Activations are the majority of memory usage.");
        assert_eq!(majority.verdict, Fails, "{profile}: {}", majority.condition);
        let heavy = of("network-size", "Matrix products and convolutions contribute heavily.");
        assert_eq!(heavy.verdict, Holds, "{profile}: {}", heavy.condition);
        let filters = of("network-size", "Smaller filters in convolutional layers reduce memory.");
        assert_ne!(
            filters.verdict, Holds,
            "{profile}: without padding a smaller filter leaves more: {}",
            filters.condition
        );
        let doubled = of("equation", "Double the batch, and activations and batch data double.");
        assert_eq!(doubled.verdict, Holds, "{profile}: {}", doubled.condition);
        let once = of("cache", "Memory is allocated once for most operations, not for each batch.");
        assert_eq!(once.verdict, Depends, "{profile}: {}", once.condition);
        let complex = of("cache", "With very complex operations the cache is more prone to this.");
        assert_ne!(complex.verdict, Verdict::NotTested, "{profile}: {}", complex.condition);
    }
    let one = on_paper("equation", "native", &[("batch", &[32])]);
    assert_eq!(one.claims[5].verdict, Verdict::NotTested, "{}", one.claims[5].condition);
}

#[test]
fn larger_batches_steady_the_gradient() {
    let cpu = || Device::new(backend_cpu::Cpu::with_threads(1).unwrap());
    let outcome = run("accumulation", &cpu, &[("batch", &[64]), ("pieces", &[8])]);
    assert_eq!(verdicts(&outcome)[2..], [Verdict::Holds; 2], "{}", outcome.claims[2].condition);
    let spread = |batch: u64| {
        let row = outcome.rows.iter().find(|row| row.setting.get("learning_with").is_some_and(|b| *b == batch));
        row.unwrap().measured["gradient_spread_millionths"].unwrap()
    };
    assert!(spread(64) < spread(8), "{} {}", spread(64), spread(8));
}

#[test]
fn times_have_a_range() {
    let cpu = || Device::new(backend_cpu::Cpu::with_threads(1).unwrap());
    for (name, sizes) in [
        ("checkpointing", &[("blocks", &[2][..]), ("batch", &[1])][..]),
        ("placement", &[("batch", &[2])]),
        ("release", &[("batch", &[2])]),
    ] {
        let outcome = run(name, &cpu, sizes);
        let timed: Vec<_> = outcome.rows.iter().filter(|row| row.measured.contains_key("step_us")).collect();
        assert!(!timed.is_empty(), "{name}");
        for row in timed {
            let of = |quantity: &str| row.measured[quantity].unwrap();
            let (least, middle, most) = (of("least_step_us"), of("step_us"), of("most_step_us"));
            assert!(0 < least && least <= middle && middle <= most, "{name}: {least} {middle} {most}");
        }
        let said = outcome.claims.iter().filter(|claim| claim.condition.contains("in the middle of 5 rounds"));
        assert!(said.count() > 0, "{name}: {}", outcome.claims[0].condition);
    }
}
