//! Programs with a technique beside recorded runs of the real libraries (`optimizers_*`, `ends` and `tuned` in `golden`, made by `scripts/record/record.py techniques`):
//! every row in every column.

use backend_cpu::Cpu;
use lab::run::{RunSpec, resolve};
use memcore::Device;
use serde_json::{Value, json};

use crate::archives;
use crate::archives::compared::golden;
use crate::flags::{difference, recorded, rows_and_host};

/// The fields of a recorded program, with its network as a file in `folder` where it is one.
fn fields(program: &Value, number: usize, folder: &std::path::Path) -> serde_json::Map<String, Value> {
    let mut fields = program["fields"].as_object().unwrap().clone();
    if program["config"].is_object() {
        let path = folder.join(format!("{number}.json"));
        std::fs::write(&path, program["config"].to_string()).unwrap();
        fields.insert("model-file".into(), json!(path));
        fields.insert("transformers".into(), json!("5.24.0"));
    }
    if let Some(name) = program["network"].as_str().unwrap().strip_prefix("export-") {
        let path = archives::unpacked(&golden(&format!("{name}.pt2.gz")), folder, name);
        fields.insert("model-file".into(), json!(path));
        fields.insert("loss".into(), json!("cross-entropy"));
    }
    fields
}

fn compare(name: &str, count: usize) {
    compare_but(name, count, &[]);
}

/// Compares all programs of a group but those named, which must differ: the list shrinks with what it lists.
fn compare_but(name: &str, count: usize, different: &[&str]) {
    let found = recorded(name);
    let programs = found["programs"].as_array().unwrap();
    assert_eq!(programs.len(), count);
    let folder = tempfile::tempdir().unwrap();
    let (mut wrong, mut seen) = (Vec::new(), Vec::new());
    for (number, program) in programs.iter().enumerate() {
        let mut theirs: Vec<lab::record::Row> = serde_json::from_value(program["rows"].clone()).unwrap();
        let spec = RunSpec::of_fields(&fields(program, number, folder.path())).unwrap();
        let (mut ours, host) = rows_and_host(&spec).unwrap_or_else(|error| panic!("{}: {error}", program["name"]));
        let bytes = json!({"copies": host.copies_peak, "pinned": host.pinned});
        assert!(program["host"].is_null() || program["host"] == bytes, "{}: {bytes}", program["name"]);
        assert_eq!(ours.pop().unwrap().label, "end");
        // What loading an export allocated and freed before.
        let before = theirs[0].n_alloc_plus_free - ours[0].n_alloc_plus_free;
        let is_export = program["network"].as_str().unwrap().starts_with("export-");
        theirs.iter_mut().for_each(|row| row.n_alloc_plus_free -= before);
        let found = match before {
            more if more != 0 && !is_export => Some(format!("{more} events more before the first row")),
            _ => difference(&ours, &theirs),
        };
        match different.iter().find(|name| program["name"] == **name) {
            Some(name) => seen.extend(found.map(|_| *name)),
            None => wrong.extend(found.map(|text| format!("{}: {text}", program["name"]))),
        }
    }
    assert_eq!(seen, different, "those that differ");
    assert!(wrong.is_empty(), "{} of {count} differ:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn optimizers_of_torch_take_what_pytorch_takes() {
    compare("optimizers_torch", 9);
}

#[test]
fn muon_takes_what_pytorch_takes() {
    compare("muon", 8);
}

#[test]
fn steps_in_backward_take_what_pytorch_takes() {
    compare("in_backward", 14);
}

#[test]
fn adafactor_takes_what_torch_and_transformers_take() {
    compare("optimizers_factored", 7);
}

#[test]
fn optimizers_of_bitsandbytes_take_what_it_takes() {
    compare("optimizers_bitsandbytes", 7);
}

#[test]
fn a_loss_of_hidden_states_takes_what_pytorch_takes() {
    compare("ends", 12);
}

#[test]
fn saved_tensors_on_the_host_take_what_pytorch_takes() {
    compare("offloaded", 17);
}

/// Values come back from the host as they were, under checkpointing and with strides too.
#[test]
fn saved_tensors_on_the_host_keep_their_values() {
    for network in [
        json!({"model": "simple-cnn", "batch": 4}),
        json!({"model": "gpt", "layers": 2, "width": 32, "heads": 2, "sequence": 16, "vocabulary": 40, "batch": 2}),
        json!({"model": "gpt", "layers": 2, "width": 32, "heads": 2, "sequence": 16, "vocabulary": 40, "batch": 2, "checkpoint": "blocks"}),
    ] {
        let losses = |kind: Option<&str>| {
            let mut fields = network.as_object().unwrap().clone();
            fields.extend(json!({"steps": 4, "save-on-cpu": kind}).as_object().unwrap().clone());
            let session = resolve(&RunSpec::of_fields(&fields).unwrap(), &[]).unwrap();
            let device = Device::new(Cpu::with_threads(1).unwrap());
            let losses = session.train(&device, &mut |_| std::ops::ControlFlow::Continue(())).unwrap().losses;
            assert_eq!((device.host().usage().copies_peak > 0, device.host().usage().copies), (kind.is_some(), 0));
            losses
        };
        let kept = losses(None);
        assert!(kept.len() == 4 && kept[0] != kept[3]);
        assert_eq!(losses(Some("pageable")), kept, "{network}");
        // Pinned copies are in row-major order, in which sums over a transposed operand have another order.
        let near = losses(Some("pinned")).iter().zip(&kept).all(|(a, b)| (a - b).abs() < 1e-5);
        assert!(near, "{network}");
    }
}

/// What was not recorded together with it.
#[test]
fn saved_tensors_on_the_host_are_refused_elsewhere() {
    let folder = tempfile::tempdir().unwrap();
    let export = archives::unpacked(&golden("mlp.pt2.gz"), folder.path(), "mlp");
    for fields in [
        json!({"model": "mlp", "save-on-cpu": "pinned", "data-parallel": 2}),
        json!({"model": "mlp", "save-on-cpu": "pinned", "devices": "meta:0,meta:1"}),
        json!({"model": "mlp", "save-on-cpu": "pinned", "schedule": "input,forward,loss,zero_grad,backward,step"}),
        json!({"model-file": export, "save-on-cpu": "pageable", "checkpoint": "layers.0"}),
    ] {
        let spec = RunSpec::of_fields(fields.as_object().unwrap());
        let error = spec.and_then(|spec| resolve(&spec, &[]).map(|_| ())).unwrap_err().to_string();
        assert!(error.starts_with("save-on-cpu: "), "{fields}: {error}");
    }
}

#[test]
fn some_blocks_that_are_computed_again_take_what_pytorch_takes() {
    compare("selected", 12);
}

/// Blocks that there are not, and networks without numbers.
#[test]
fn some_blocks_are_refused_where_there_are_none() {
    let case = recorded("selected")["programs"][0].clone();
    let folder = tempfile::tempdir().unwrap();
    for (text, problem) in [("blocks:4", "3 blocks"), ("0,3", "no block 3"), ("sqrt", "sqrt: "), ("h.*", "h.*: ")] {
        let mut fields = fields(&case, 0, folder.path());
        fields.insert("checkpoint".into(), json!(text));
        let error = resolve(&RunSpec::of_fields(&fields).unwrap(), &[]).map(|_| ()).unwrap_err().to_string();
        assert!(error.starts_with("checkpoint: ") && error.contains(problem), "{text}: {error}");
    }
}

/// One of several ranks that train a part of a network: adapters, or parameters that are not frozen.
#[test]
fn ranks_of_a_part_take_what_pytorch_takes() {
    compare("ranked", 16);
}

/// Combinations that were drawn at random.
#[test]
fn techniques_together_take_what_the_libraries_take() {
    compare("combined", 30);
}

/// The same with batches and lengths that are odd numbers, clipping, averages, and a scaled loss.
#[test]
fn trainings_drawn_widely_take_what_the_libraries_take() {
    compare("wide", 24);
}

#[test]
fn ligers_loss_takes_what_it_takes() {
    compare("liger", 9);
    compare("liger_autocast", 6);
}

/// `apply_liger_kernel_to_…`: norms, rotary positions, gates and the loss.
#[test]
fn ligers_kernels_take_what_they_take() {
    compare("liger_kernels", 16);
}

/// PEFT's adapters over weights of bitsandbytes, with its optimizers: 8-bit, paged, of three steps under checkpointing.
#[test]
fn adapters_with_optimizers_take_what_peft_and_bitsandbytes_take() {
    compare("tuned", 14);
}

/// Modules that are trained as copies, adapters of tables, rsLoRA, and DoRA under autocast. Over 4 bits PEFT makes four events more in a forward pass.
#[test]
fn copied_modules_and_tables_take_what_peft_takes() {
    let of_few_bits = "hf-llama adamw bf16-autocast-bf16 16 all-linear load-in-4bit double-quant blocks dora";
    compare_but("adapted_ends", 18, &[of_few_bits]);
}

/// Norms of batches among them that are frozen, over inputs of one position: PyTorch's kernel allocates the gradients of weight and bias all the same.
#[test]
fn adapters_of_convolutions_take_what_peft_takes() {
    compare("adapted_convolutions", 11);
}

/// Two with DoRA differ: a table of 16 bits under autocast, and one beside weights of 4 bits (four events while the network is made).
#[test]
fn adapters_of_further_tables_take_what_peft_takes() {
    const WITH_MAGNITUDES: [&str; 2] = [
        "hf-llama adamw bf16-autocast-bf16 8 embed_tokens dora",
        "hf-wide adamw bf16 8 embed_tokens,q_proj load-in-4bit dora",
    ];
    compare_but("adapted_tables", 15, &WITH_MAGNITUDES);
}

#[test]
fn adapters_that_peft_does_not_put_on_are_an_error() {
    let grouped = json!({"model": "mobilenet_v2", "lora": 8, "lora-target": "features.1.conv.0.0"});
    let copied = json!({"model": "gpt", "lora": 8, "lora-target": "fc1", "modules-to-save": "c1"});
    let missing = json!({"model": "gpt", "lora": 8, "lora-target": "fc1,lnf"});
    for (fields, part) in [
        (grouped, "PEFT needs a rank that 32 groups divide"),
        (copied, "modules-to-save: c1: PEFT would copy the adapter"),
        (missing, "lora-target: lnf: "),
    ] {
        let spec = RunSpec::of_fields(fields.as_object().unwrap()).unwrap();
        let error = rows_and_host(&spec).map(|_| ()).unwrap_err().to_string();
        assert!(error.contains(part), "{fields}: {error}");
    }
}

/// Forms that were not recorded, and losses of other files.
#[test]
fn a_loss_of_hidden_states_is_refused_elsewhere() {
    let case = recorded("ends")["programs"][0].clone();
    let folder = tempfile::tempdir().unwrap();
    let refused = |more: Value| {
        let mut fields = fields(&case, 0, folder.path());
        fields.extend(more.as_object().unwrap().clone());
        resolve(&RunSpec::of_fields(&fields).unwrap(), &[]).map(|_| ()).unwrap_err().to_string()
    };
    for more in [
        json!({"loss": "mse"}),
        json!({"loop": "trainer"}),
        json!({"eval-every": 2}),
        json!({"keep": "output"}),
        json!({"head": "base-model"}),
        json!({"loss": "liger", "precision": "autocast-bf16"}),
        json!({"loss": "liger", "precision": "fp16"}),
    ] {
        let error = refused(more.clone());
        assert!(error.starts_with("loss: "), "{more}: {error}");
    }
    let built_in = json!({"model": "gpt", "loss": "chunked"});
    let error = resolve(&RunSpec::of_fields(built_in.as_object().unwrap()).unwrap(), &[]).map(|_| ()).unwrap_err();
    assert!(error.to_string().starts_with("loss: "), "{error}");
    let export = archives::unpacked(&golden("mlp.pt2.gz"), folder.path(), "mlp");
    let exported = json!({"model-file": export, "loss": "chunked"});
    let error = resolve(&RunSpec::of_fields(exported.as_object().unwrap()).unwrap(), &[]).map(|_| ()).unwrap_err();
    assert!(error.to_string().starts_with("loss: checkpointed, chunked and liger are for a config.json"), "{error}");
    for text in ["chunked:0", "chunked:x", "chunkedly"] {
        let fields = json!({"loss": text});
        assert!(RunSpec::of_fields(fields.as_object().unwrap()).is_err(), "{text}");
    }
}

/// Its kernels are not here: a training is refused with a command that works.
#[test]
fn an_optimizer_that_its_library_computes_is_not_trained() {
    let spec = |fields: Value| RunSpec::of_fields(fields.as_object().unwrap()).unwrap();
    let fused = json!({"optimizer": "adamw8bit", "model": "mlp", "optimizer-impl": "fused"});
    let error = resolve(&spec(fused), &[]).map(|_| ());
    assert!(error.unwrap_err().to_string().contains("adamw8bit has no fused form"));
    for (name, field, value) in [("rprop", "weight-decay", json!(0.1)), ("lion", "maximize", json!(true))] {
        let mut fields = json!({"optimizer": name});
        fields[field] = value;
        assert!(resolve(&spec(fields), &[]).map(|_| ()).unwrap_err().to_string().starts_with(field), "{name}");
    }
}

#[test]
fn other_optimizers_of_bitsandbytes_take_what_it_takes() {
    compare("optimizers_bitsandbytes_others", 12);
}

#[test]
fn blocks_that_keep_results_of_operators_take_what_pytorch_takes() {
    compare("saved", 17);
}

/// Values are the same, whatever a block keeps; texts in one example do not see each other.
#[test]
fn kept_results_and_texts_have_their_values() {
    let losses = |more: Value| {
        let case = recorded("packed")["programs"][2].clone();
        let folder = tempfile::tempdir().unwrap();
        let mut fields = fields(&case, 0, folder.path());
        ["packing", "precision"].iter().for_each(|name| drop(fields.remove(*name)));
        fields.extend(more.as_object().unwrap().clone());
        let session = resolve(&RunSpec::of_fields(&fields).unwrap(), &[]).unwrap();
        let device = Device::new(Cpu::with_threads(1).unwrap());
        session.train(&device, &mut |_| std::ops::ControlFlow::Continue(())).unwrap().losses
    };
    let plain = losses(json!({"dropout": null}));
    assert!(plain.len() == 3 && plain[0] != plain[2]);
    for kept in ["matmuls", "mm:2,attention", "addmm"] {
        assert_eq!(losses(json!({"checkpoint-save": kept})), plain, "{kept}");
    }
    assert_ne!(losses(json!({"packing": 3})), plain);
    assert_ne!(losses(json!({"logits-to-keep": 5})), plain);
}

/// What was not recorded.
#[test]
fn techniques_are_refused_elsewhere() {
    let case = recorded("last")["programs"][0].clone();
    let folder = tempfile::tempdir().unwrap();
    for (more, field) in [
        (json!({"loop": "trainer"}), "logits-to-keep"),
        (json!({"logits-to-keep": 0}), "logits-to-keep"),
        (json!({"logits-to-keep": 49}), "logits-to-keep"),
        (json!({"loss": "chunked"}), "logits-to-keep"),
        (json!({"head": "base-model"}), "logits-to-keep"),
        (json!({"logits-to-keep": null, "packing": 1}), "packing"),
        (json!({"logits-to-keep": null, "packing": 2, "attention-mask": "full"}), "packing"),
        (json!({"logits-to-keep": null, "packing": 2, "transformers": "4.51"}), "packing"),
        (json!({"logits-to-keep": null, "checkpoint-save": "mm"}), "checkpoint-save"),
        (
            json!({"logits-to-keep": null, "checkpoint-save": "mm", "checkpoint": "blocks", "data-parallel": 2}),
            "checkpoint-save",
        ),
    ] {
        let mut fields = fields(&case, 0, folder.path());
        fields.extend(more.as_object().unwrap().clone());
        let spec = RunSpec::of_fields(&fields);
        let error = spec.and_then(|spec| resolve(&spec, &[]).map(|_| ())).unwrap_err().to_string();
        assert!(error.starts_with(&format!("{field}: ")), "{more}: {error}");
    }
    let built_in = json!({"model": "gpt", "packing": 2});
    let error = resolve(&RunSpec::of_fields(built_in.as_object().unwrap()).unwrap(), &[]).map(|_| ()).unwrap_err();
    assert!(error.to_string().starts_with("packing: "), "{error}");
}

#[test]
fn scores_of_the_last_tokens_take_what_transformers_takes() {
    compare("last", 9);
}

#[test]
fn texts_in_one_example_take_what_transformers_takes() {
    compare("packed", 13);
}
