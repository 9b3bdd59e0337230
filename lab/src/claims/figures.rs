//! The number that decides each claim: which quantity of which rows.

use crate::experiments::{Measurement, Outcome};

/// A number: what it is called beside others, the quantity, and what of the setting says which row.
type Pick = (&'static str, &'static str, &'static [(&'static str, &'static str)]);

/// For each claim of an experiment, in the order of its claims.
type Figures = &'static [&'static [Pick]];

/// Every experiment's.
const ALL: &[(&str, Figures)] = &[
    (
        "batch-size",
        &[
            &[("128", "reserved_bytes", &[("run", "128")]), ("32", "reserved_bytes", &[("run", "32")])],
            &[
                ("nodes alive, one batch", "graph_nodes_alive", &[("run", "epoch of 128 in 128")]),
                ("four", "graph_nodes_alive", &[("run", "epoch of 128 in 32")]),
            ],
            &[("peak, 128", "peak_bytes", &[("run", "128")]), ("32", "peak_bytes", &[("run", "32")])],
        ],
    ),
    (
        "steady-state",
        &[
            &[("last step adds", "growth_bytes", &[("network", "simple-cnn"), ("step", "5")])],
            &[
                ("after step 0", "allocated_bytes", &[("network", "simple-cnn"), ("step", "0")]),
                ("5", "allocated_bytes", &[("network", "simple-cnn"), ("step", "5")]),
            ],
        ],
    ),
    (
        "leak",
        &[
            &[("per step", "growth_bytes", &[("program", "activations in a list")])],
            &[("per step", "growth_bytes", &[("program", "the same, list cleared")])],
            &[("per step", "growth_bytes", &[("program", "never zero_grad")])],
        ],
    ),
    (
        "release",
        &[
            &[
                ("reserved, kept", "reserved_between_steps_bytes", &[("after each step", "del outputs")]),
                ("emptied", "reserved_between_steps_bytes", &[("after each step", "del outputs; empty_cache()")]),
            ],
            &[
                ("allocated", "allocated_bytes", &[("order", "delete, then empty"), ("action", "del model")]),
                ("reserved", "reserved_bytes", &[("order", "delete, then empty"), ("action", "del model")]),
            ],
        ],
    ),
    (
        "equation",
        &[
            &[("", "requested_model_bytes", &[("batch", "512")])],
            &[("", "requested_activation_bytes", &[("batch", "512")])],
            &[("", "requested_optimizer_bytes", &[("batch", "512")])],
            &[("", "requested_batch_bytes", &[("batch", "512")])],
            &[("peak", "peak_bytes", &[("batch", "32")])],
            &[
                ("activations, batch 32", "requested_activation_bytes", &[("batch", "32")]),
                ("512", "requested_activation_bytes", &[("batch", "512")]),
            ],
        ],
    ),
    (
        "network-size",
        &[
            &[
                ("16 filters", "parameters", &[("network", "small-network")]),
                ("64", "parameters", &[("network", "larger-conv")]),
            ],
            &[
                ("16 filters", "requested_activation_bytes", &[("network", "small-network"), ("batch", "1")]),
                ("64", "requested_activation_bytes", &[("network", "larger-conv"), ("batch", "1")]),
            ],
            &[
                ("batch 1", "requested_activation_bytes", &[("network", "small-network"), ("batch", "1")]),
                ("4", "requested_activation_bytes", &[("network", "small-network"), ("batch", "4")]),
            ],
            &[
                ("activations", "requested_activation_bytes", &[("network", "larger-conv"), ("batch", "4")]),
                ("of", "requested_with_loss_bytes", &[("network", "larger-conv"), ("batch", "4")]),
            ],
            &[
                ("peak, 1 × 1", "requested_peak_without_workspaces_bytes", &[("filter", "1"), ("padding", "none")]),
                ("5 × 5", "requested_peak_without_workspaces_bytes", &[("filter", "5"), ("padding", "none")]),
            ],
            &[
                ("by products", "made_by_products_bytes", &[("network", "larger-conv"), ("batch", "4")]),
                ("peak", "peak_bytes", &[("network", "larger-conv"), ("batch", "4")]),
            ],
        ],
    ),
    (
        "optimizer",
        &[
            &[("state", "requested_state_bytes", &[("optimizer", "adam"), ("implementation", "foreach")])],
            &[
                ("peak, AdamW", "peak_bytes", &[("optimizer", "adamw"), ("implementation", "foreach")]),
                ("SGD", "peak_bytes", &[("optimizer", "sgd"), ("implementation", "foreach")]),
            ],
        ],
    ),
    (
        "accumulation",
        &[
            &[("difference in 10⁻⁹", "gradient_difference_ppb", &[])],
            &[
                ("accumulated", "peak_bytes", &[("micro_batch", "64"), ("pieces", "8")]),
                ("small batch", "peak_bytes", &[("micro_batch", "64"), ("pieces", "1")]),
            ],
            &[
                ("spread in 10⁻⁶, batch 64", "gradient_spread_millionths", &[("learning_with", "64")]),
                ("512", "gradient_spread_millionths", &[("learning_with", "512")]),
            ],
            &[
                ("loss in 10⁻⁶, batch 64", "loss_after_the_same_examples_millionths", &[("learning_with", "64")]),
                ("512", "loss_after_the_same_examples_millionths", &[("learning_with", "512")]),
            ],
        ],
    ),
    (
        "model-parallel",
        &[
            &[
                ("peak, one device", "peak_bytes", &[("way", "one device"), ("device", "0")]),
                ("first of four", "peak_bytes", &[("way", "split"), ("device", "0")]),
            ],
            &[
                ("states, ZeRO-0", "states_bytes", &[("way", "7.5 B, ZeRO-0"), ("rank", "0")]),
                ("1", "states_bytes", &[("way", "7.5 B, ZeRO-1"), ("rank", "0")]),
                ("2", "states_bytes", &[("way", "7.5 B, ZeRO-2"), ("rank", "0")]),
                ("3", "states_bytes", &[("way", "7.5 B, ZeRO-3"), ("rank", "0")]),
            ],
            &[
                ("sent, ZeRO-0", "sent_bytes", &[("way", "7.5 B, ZeRO-0"), ("rank", "0")]),
                ("2", "sent_bytes", &[("way", "7.5 B, ZeRO-2"), ("rank", "0")]),
                ("3", "sent_bytes", &[("way", "7.5 B, ZeRO-3"), ("rank", "0")]),
            ],
        ],
    ),
    (
        "checkpointing",
        &[
            &[
                ("peak, whole", "peak_bytes", &[("network", "decoder"), ("checkpoint", "none")]),
                ("by blocks", "peak_bytes", &[("network", "decoder"), ("checkpoint", "blocks")]),
            ],
            &[("kernels again", "kernels_again", &[("network", "decoder"), ("checkpoint", "blocks")])],
        ],
    ),
    (
        "precision",
        &[
            &[
                ("gradients, fp32", "gradient_bytes", &[("batch", "32"), ("precision", "fp32")]),
                ("fp16", "gradient_bytes", &[("batch", "32"), ("precision", "fp16")]),
            ],
            &[
                ("peak, fp32", "peak_bytes", &[("batch", "4096"), ("precision", "fp32")]),
                ("autocast", "peak_bytes", &[("batch", "4096"), ("precision", "autocast-fp16")]),
            ],
            &[
                ("weights, fp32", "parameter_bytes", &[("batch", "32"), ("precision", "fp32")]),
                ("fp16", "parameter_bytes", &[("batch", "32"), ("precision", "fp16")]),
            ],
            &[
                (
                    "gradients that are 0, no scaler",
                    "zero_gradients",
                    &[("training", "autocast-fp16, small, no scaler")],
                ),
                ("scaler", "zero_gradients", &[("training", "autocast-fp16, small, scaler")]),
            ],
        ],
    ),
    (
        "sequence-length",
        &[
            &[
                ("per pair, eager", "bytes_per_pair_of_tokens", &[("attention", "eager")]),
                ("sdpa", "bytes_per_pair_of_tokens", &[("attention", "sdpa")]),
            ],
            &[
                ("per step, let go", "growth_bytes", &[("attention", "seq2seq, weights let go"), ("sequence", "96")]),
                ("kept", "growth_bytes", &[("attention", "seq2seq, weights in a list"), ("sequence", "96")]),
            ],
        ],
    ),
    (
        "placement",
        &[
            &[("up per step", "uploaded_per_step_bytes", &[("arrangement", "data copied per step")])],
            &[
                ("peak, host", "peak_bytes", &[("arrangement", "table on the host too")]),
                ("device", "peak_bytes", &[("arrangement", "data copied per step")]),
            ],
        ],
    ),
    (
        "quantization",
        &[&[
            ("float32", "weights_bytes", &[("weights", "float32")]),
            ("int8", "weights_bytes", &[("weights", "int8, floats in the product")]),
        ]],
    ),
    (
        "fit",
        &[
            &[("reserved at the largest", "reserved_bytes", &[]), ("needed", "peak_bytes", &[])],
            &[("peak of the largest", "peak_bytes", &[])],
        ],
    ),
    (
        "cache",
        &[
            &[
                ("driver calls, cached", "driver_calls", &[("program", "batch 128"), ("policy", "caching, last step")]),
                ("direct", "driver_calls", &[("program", "batch 128"), ("policy", "direct")]),
            ],
            &[
                ("reserved", "reserved_bytes", &[("program", "batch 128"), ("policy", "caching")]),
                ("live at once", "reserved_bytes", &[("program", "batch 128"), ("policy", "direct")]),
            ],
            &[
                ("reserved", "reserved_bytes", &[("program", "a decoder of 4 blocks"), ("policy", "caching")]),
                ("live at once", "reserved_bytes", &[("program", "a decoder of 4 blocks"), ("policy", "direct")]),
            ],
            &[(
                "driver calls, last step",
                "driver_calls",
                &[("program", "batch 128"), ("policy", "caching, last step")],
            )],
        ],
    ),
    (
        "fragmentation",
        &[
            &[
                ("reserved", "reserved_bytes", &[("program", "last batch smaller"), ("policy", "caching")]),
                ("live at once", "reserved_bytes", &[("program", "last batch smaller"), ("policy", "direct")]),
            ],
            &[
                ("reserved, best order", "reserved_bytes", &[("reserved", "least")]),
                ("worst", "reserved_bytes", &[("reserved", "most")]),
            ],
            &[
                ("reserved", "reserved_bytes", &[("program", "staged weights"), ("policy", "caching")]),
                ("max_split", "reserved_bytes", &[("program", "staged weights"), ("policy", "max_split 20")]),
            ],
        ],
    ),
    (
        "beliefs",
        &[
            &[
                ("largest block, cache kept", "largest_block_bytes", &[("before the block", "nothing")]),
                ("emptied", "largest_block_bytes", &[("before the block", "empty_cache()")]),
            ],
            &[
                ("shown", "reserved_bytes", &[("process", "small batch after a large one")]),
                ("needed", "needed_bytes", &[("process", "small batch after a large one")]),
            ],
            &[
                ("peak, 8970 parameters", "peak_bytes", &[("width", "64"), ("batch", "255")]),
                ("85002", "peak_bytes", &[("width", "256"), ("batch", "255")]),
            ],
        ],
    ),
];

/// The numbers that decide claim `index` of an experiment, in words; `None` where no row has them, as with other sizes than the experiment's own.
pub(super) fn number(experiment: &str, index: usize, outcome: &Outcome) -> Option<String> {
    let (_, figures) = ALL.iter().find(|(name, _)| *name == experiment)?;
    let said: Option<Vec<String>> = figures.get(index)?.iter().map(|pick| said(pick, outcome)).collect();
    said.map(|said| said.join("; "))
}

fn said(&(label, quantity, setting): &Pick, outcome: &Outcome) -> Option<String> {
    let of = |row: &&Measurement| row.measured.contains_key(quantity) && setting.iter().all(|pair| has(row, pair));
    let value = outcome.rows.iter().find(of)?.measured[quantity];
    let value = match value {
        Some(value) if quantity.contains("bytes") => format!("{value} B"),
        Some(value) => value.to_string(),
        None => "not known without values".into(),
    };
    Some(if label.is_empty() { value } else { format!("{label}: {value}") })
}

fn has(row: &Measurement, (name, expected): &(&str, &str)) -> bool {
    let value = match row.setting.get(*name) {
        Some(serde_json::Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
        None => return false,
    };
    value == *expected
}
