use lab_base::speeds::DataSheet;
use serde_json::{Value, json};

use super::*;

/// Of an RTX 4090.
fn speed() -> Speed {
    Speed::from_data_sheet(&DataSheet { gb_per_s: 1008.0, f32_tflops: 82.6, f16_tflops: 165.2 }, 89)
}

fn spec(fields: &Value) -> RunSpec {
    RunSpec::of_fields(fields.as_object().unwrap()).unwrap()
}

#[test]
fn no_choice_that_saves_as_much_costs_less() {
    let blocks: Vec<Block> =
        [(7, 3), (5, 3), (5, 3), (9, 5), (2, 1), (11, 9)].map(|(saved, cost)| Block { saved, cost }).into();
    let choices = cheapest(&blocks);
    for set in 0_usize..1 << blocks.len() {
        let chosen = || (0..blocks.len()).filter(|block| set >> block & 1 == 1).map(|block| blocks[block]);
        let (saved, cost): (u64, u64) = (chosen().map(|b| b.saved).sum(), chosen().map(|b| b.cost).sum());
        let best = choices.iter().find(|choice| choice.saved >= saved).unwrap();
        assert!(best.cost <= cost, "{set:b}: {saved} for {cost}, {best:?}");
    }
    assert!(choices.windows(2).all(|two| two[0].saved < two[1].saved && two[0].cost < two[1].cost));
}

#[test]
fn of_blocks_that_are_alike_the_first_are_chosen() {
    let choices = cheapest(&[Block { saved: 512, cost: 4 }; 5]);
    let chosen: Vec<Vec<usize>> = choices.into_iter().map(|choice| choice.blocks).collect();
    assert_eq!(chosen, [vec![], vec![0], vec![0, 1], vec![0, 1, 2], vec![0, 1, 2, 3], vec![0, 1, 2, 3, 4]]);
}

#[test]
fn blocks_among_all_come_from_the_cheapest_on() {
    let blocks: Vec<Block> = (0..6).map(|_| Block { saved: 512, cost: 4 }).collect();
    let chosen: Vec<Vec<usize>> = among_all(&blocks, 4).into_iter().map(|choice| choice.blocks).collect();
    assert_eq!(chosen, [vec![5], vec![4], vec![3], vec![2, 5], vec![1, 3, 5]]);
    assert_eq!(among_all(&blocks, 3).len(), 4, "a choice of three is not cheaper");
}

#[test]
fn where_no_block_saves_anything_alone_segments_do() {
    let runner = DryRunner::new(&[], &|| false);
    let speed = speed();
    let spec = spec(&json!({"model": "mlp", "layers": 9, "width": 1024, "batch": 4096, "optimizer": "adamw"}));
    let mut segments = spec.clone();
    segments.model.checkpoint = Some(Recompute::Sqrt);
    let budget = runner.figures_of_change(&segments).unwrap().reserved_bytes;
    let every = runner.figures_of_change(&with(&spec, (0..9).collect())).unwrap();
    assert!(budget < every.reserved_bytes, "no choice of blocks fits");
    let choice = runner.checkpoints_within(&spec, speed, Some(budget)).unwrap().unwrap();
    assert_eq!((choice.spec.model.checkpoint, choice.blocks.len()), (Some(Recompute::Sqrt), 9));
    assert!(runner.checkpoints_within(&spec, speed, Some(budget / 2)).unwrap().is_none());
}

#[test]
fn blocks_that_are_alike_are_also_tried_among_all() {
    let runner = DryRunner::new(&[], &|| false);
    let speed = speed();
    let spec = spec(&json!({"model": "smollm2-135m", "sequence": 256, "batch": 4, "optimizer": "adamw"}));
    let mut second = spec.clone();
    second.model.checkpoint = Some(Recompute::Every(2));
    let budget = runner.figures_of_change(&second).unwrap().reserved_bytes;
    let choice = runner.checkpoints_within(&spec, speed, Some(budget)).unwrap().unwrap();
    assert!(choice.blocks.len() <= 15 && choice.figures.reserved_bytes <= budget, "{:?}", choice.blocks);
}

#[test]
fn no_choice_of_blocks_within_the_budget_takes_less_time() {
    let runner = DryRunner::new(&[], &|| false);
    let speed = speed();
    let gpt = json!({"model": "gpt", "layers": 4, "width": 64, "heads": 2, "sequence": 64, "vocabulary": 300, "batch": 16, "optimizer": "sgd"});
    // Five stages of different sizes.
    let vgg = json!({"model": "vgg16", "image": 224, "width": 8, "batch": 8, "optimizer": "sgd"});
    for (fields, blocks) in [(gpt, 4), (vgg, 5)] {
        let spec = spec(&fields);
        let all: Vec<(u64, f64)> = (0_usize..1 << blocks)
            .map(|set| {
                let run = with(&spec, (0..blocks).filter(|block| set >> block & 1 == 1).collect());
                let figures = runner.figures_of_change(&run).unwrap();
                (figures.reserved_bytes, runner.step_seconds(&run, speed).unwrap())
            })
            .collect();
        let (none, every) = (all.first().unwrap().0, all.last().unwrap().0);
        for share in 0..5 {
            let budget = every + (none - every) * share / 4;
            let choice = runner.checkpoints_within(&spec, speed, Some(budget)).unwrap().unwrap();
            assert!(choice.figures.reserved_bytes <= budget && choice.of == blocks);
            let chosen = runner.step_seconds(&choice.spec, speed).unwrap();
            let least = all.iter().filter(|(bytes, _)| *bytes <= budget).map(|(_, seconds)| *seconds);
            let least = least.min_by(f64::total_cmp).unwrap();
            assert!(chosen <= least * (1.0 + 1e-9), "{fields:?} {budget}: {:?}, {chosen} {least}", choice.blocks);
        }
    }
}
