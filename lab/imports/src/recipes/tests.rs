use serde_json::json;

use super::*;
use crate::huggingface::Configuration;

/// Returns what a recipe means, around a network of transformers that this program reads itself.
fn counted(text: &str) -> (Recipe, Counted) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("recipe.yaml");
    std::fs::write(&path, text).unwrap();
    let recipe = Recipe::read(&path).unwrap().expect("a recipe");
    let config = folder.path().join("config.json");
    std::fs::write(&config, r#"{"torch_dtype": "bfloat16"}"#).unwrap();
    let counted = recipe.counted(&Around { config: Some(Configuration::File(&config)), ..Around::default() }).unwrap();
    (recipe, counted)
}

fn refused(counted: &Counted) -> Vec<&str> {
    counted.args.refusals.iter().map(|refused| refused.argument.as_str()).collect()
}

fn fields(counted: Counted) -> Value {
    Value::Object(counted.args.fields)
}

const AXOLOTL: &str = "base_model: org/small\nsequence_len: 4096\nmicro_batch_size: 2\ngradient_accumulation_steps: 4\noptimizer: adamw_torch_fused\n\
    learning_rate: 2e-4\nbf16: auto\ngradient_checkpointing: true\nattn_implementation: flash_attention_2\nsample_packing: true\n\
    wandb_project:\noutput_dir: ./out\ndatasets:\n  - path: org/texts\n    type: alpaca\n";

const LLAMA_FACTORY: &str = "model_name_or_path: org/small\nstage: sft\ndo_train: true\nfinetuning_type: full\ncutoff_len: 1024\nbf16: true\n\
    per_device_train_batch_size: 1\ngradient_accumulation_steps: 2\nlearning_rate: 1.0e-5\ntemplate: qwen\ndataset: alpaca_en_demo\nplot_loss: true\n";

const LLAMA_FACTORY_V1: &str = "model: org/small\nmodel_class: llm\npeft_config:\n  name: lora\n  r: 16\n  target_modules: all\nquant_config:\n  \
    name: bnb\n  quantization_bit: 4\ndist_config: null\ntrain_dataset: data/sft.yaml\nmicro_batch_size: 4\ncutoff_len: 1024\nlearning_rate: 1.0e-4\n";

const TRL: &str = "model_name_or_path: org/small\ndataset_name: org/texts\nper_device_train_batch_size: 4\nmax_length: 512\nuse_peft: true\nlora_r: 32\n\
    lora_target_modules: all-linear\ndtype: bfloat16\nenv:\n  PYTORCH_CUDA_ALLOC_CONF: expandable_segments:True\n";

const SWIFT: &str = "model: org/small\ntuner_type: lora\ntorch_dtype: bfloat16\nmax_length: 2048\nper_device_train_batch_size: 4\n\
    target_modules: [q_proj, v_proj]\ndataset: [org/texts#500]\nwarmup_ratio: 0.05\n";

const TORCHTUNE: &str = "#   tune download org/small --output-dir /nowhere/small\n#   tune run lora_finetune_single_device --config x\nmodel:\n  _component_: \
    torchtune.models.llama3_2.lora_llama3_2_1b\n  lora_attn_modules: ['q_proj', 'output_proj']\n  apply_lora_to_mlp: True\n  lora_rank: 64\ntokenizer:\n  \
    _component_: torchtune.models.llama3.llama3_tokenizer\n  max_seq_len: 2048\ncheckpointer:\n  checkpoint_dir: /nowhere/small\noptimizer:\n  \
    _component_: torch.optim.AdamW\n  fused: True\nloss:\n  _component_: torchtune.modules.loss.LinearCrossEntropyLoss\nbatch_size: 4\n\
    gradient_accumulation_steps: 8\nclip_grad_norm: null\ndtype: bf16\nenable_activation_checkpointing: True\nlog_level: INFO\n";

#[test]
fn each_trainer_is_told_by_its_keys_and_started_with_its_command() {
    for (text, trainer, command) in [
        (AXOLOTL, Trainer::Axolotl, "axolotl train FILE"),
        (LLAMA_FACTORY, Trainer::LlamaFactory, "llamafactory-cli train FILE"),
        (LLAMA_FACTORY_V1, Trainer::LlamaFactoryV1, "llamafactory-cli sft FILE"),
        (TRL, Trainer::Trl, "trl sft --config FILE"),
        (SWIFT, Trainer::Swift, "swift sft FILE"),
        (TORCHTUNE, Trainer::Torchtune, "tune run lora_finetune_single_device --config FILE"),
    ] {
        let (recipe, _) = counted(text);
        assert_eq!(recipe.trainer, trainer);
        assert_eq!(recipe.network.as_deref(), Some("org/small"), "{trainer}");
        assert!(!recipe.because.is_empty());
        assert_eq!(recipe.command.join(" ").replace(&recipe.file, "FILE"), command);
    }
    for (more, command) in
        [("num_generations: 8\n", "grpo"), ("desirable_weight: 1.0\n", "kto"), ("beta: 0.1\n", "dpo")]
    {
        assert_eq!(counted(&format!("{TRL}{more}")).0.command[1], command);
    }
    assert_eq!(counted(&format!("{SWIFT}rlhf_type: dpo\n")).0.command[1], "rlhf");
}

#[test]
fn keys_become_fields() {
    assert_eq!(
        fields(counted(AXOLOTL).1),
        json!({"batch": 2, "sequence": 4096, "accumulate": 4, "lr": 2e-4, "optimizer": "adamw", "optimizer-impl": "fused", "checkpoint": "blocks",
            "precision": "bf16-autocast-bf16", "loop": "trainer"})
    );
    assert_eq!(
        fields(counted(LLAMA_FACTORY).1),
        json!({"batch": 1, "sequence": 1024, "accumulate": 2, "lr": 1e-5, "optimizer": "adamw", "optimizer-impl": "fused", "checkpoint": "blocks",
            "precision": "autocast-bf16", "loop": "trainer"}),
        "what is trained is cast to float32"
    );
    assert_eq!(
        fields(counted(TRL).1),
        json!({"batch": 4, "sequence": 512, "lora": 32, "lora-target": "all-linear", "lora-dropout": 0.05, "optimizer": "adamw", "optimizer-impl": "fused",
            "checkpoint": "blocks", "precision": "bf16-autocast-bf16", "alloc-conf": "expandable_segments:True", "keep": "loss", "clip-grad-norm": 1.0,
            "lr": 5e-5}),
        "adapters are trained in a plain loop"
    );
    assert_eq!(
        fields(counted(SWIFT).1),
        json!({"batch": 4, "accumulate": 4, "sequence": 2048, "lora": 8, "lora-target": "q_proj,v_proj", "lora-dropout": 0.05, "optimizer": "adamw",
            "optimizer-impl": "fused", "checkpoint": "blocks", "precision": "bf16-autocast-bf16", "keep": "loss", "clip-grad-norm": 1.0, "lr": 5e-5}),
        "16 examples a step unless the recipe says"
    );
    assert_eq!(
        fields(counted(TORCHTUNE).1),
        json!({"batch": 4, "accumulate": 8, "sequence": 2048, "lora": 64, "lora-target": "q_proj,o_proj,gate_proj,up_proj,down_proj", "optimizer": "adamw",
            "optimizer-impl": "fused", "checkpoint": "blocks", "precision": "bf16", "keep": "loss"})
    );
}

#[test]
fn weights_of_few_bits_and_types() {
    let with = |base: &str, more: &str| fields(counted(&format!("{base}{more}")).1);
    let four = with(AXOLOTL, "adapter: qlora\nload_in_4bit: true\nlora_r: 16\nlora_target_linear: true\n");
    assert_eq!(
        (&four["load-in-4bit"], &four["lora"], &four["lora-target"]),
        (&json!(true), &json!(16), &json!("all-linear"))
    );
    // The Trainer's own form is fused, which bitsandbytes does not have.
    let eight = with(
        &AXOLOTL.lines().filter(|line| !line.starts_with("optimizer")).collect::<Vec<_>>().join("\n"),
        "\nadapter: lora\nlora_r: 8\noptimizer: adamw_bnb_8bit\n",
    );
    assert_eq!((&eight["optimizer"], &eight["optimizer-impl"]), (&json!("adamw8bit"), &json!("loop")));
    let four = with(&LLAMA_FACTORY.replace("full", "lora"), "quantization_bit: 4\n");
    assert_eq!(
        (&four["load-in-4bit"], &four["lora"], &four["precision"]),
        (&json!(true), &json!(8), &json!("bf16-autocast-bf16"))
    );
    assert_eq!(with(&LLAMA_FACTORY.replace("bf16", "pure_bf16"), "")["precision"], "bf16");
    assert_eq!(with(&AXOLOTL.replace("bf16: auto", "bf16: false"), "")["precision"], "fp32");
    assert_eq!(with(&TRL.replace("dtype: bfloat16\n", ""), "")["precision"], "autocast-bf16", "TRL loads float32");
    assert_eq!(
        with(&SWIFT.replace("torch_dtype: bfloat16\n", ""), "")["precision"],
        "bf16-autocast-bf16",
        "the file's type"
    );
    let nested = with(
        &TRL.lines()
            .filter(|line| !line.contains("load_in") && !line.starts_with("use_peft"))
            .collect::<Vec<_>>()
            .join("\n"),
        "\nuse_peft: true\nuse_dora: true\nload_in_4bit: true\nuse_bnb_nested_quant: true\n",
    );
    assert_eq!((&nested["double-quant"], &nested["dora"]), (&json!(true), &json!(true)));
    assert_eq!(with(SWIFT, "quant_bits: 8\nquant_method: bnb\n")["load-in-8bit"], true);
}

/// Magnitudes, frozen parts, and scales that two trainers quantize unless told.
#[test]
fn checkpointing_of_the_reentrant_kind_is_not_counted_with_8_bit_weights() {
    let of = |text: &str| counted(text).1;
    let eight = format!("{AXOLOTL}load_in_8bit: true\nadapter: lora\nlora_r: 8\n");
    assert_eq!(refused(&of(&eight)), ["gradient checkpointing with 8-bit weights and use_reentrant=true"]);
    let other = format!("{eight}gradient_checkpointing_kwargs:\n  use_reentrant: false\n");
    assert!(refused(&of(&other)).is_empty());
    assert_eq!(refused(&of(&format!("{LLAMA_FACTORY}quantization_bit: 8\n"))).len(), 1);
    assert!(refused(&of(&format!("{LLAMA_FACTORY}quantization_bit: 8\nuse_reentrant_gc: false\n"))).is_empty());
    let is_said =
        |text: &str| of(text).args.left_out.iter().any(|one| one.contains("use_reentrant=True, axolotl's default"));
    assert!(is_said(AXOLOTL) && !is_said(&other) && !is_said(&format!("{AXOLOTL}unfrozen_parameters:\n  - lm_head\n")));
}

#[test]
fn adapters_and_frozen_parts_are_fields() {
    let with = |base: &str, more: &str| fields(counted(&format!("{base}{more}")).1);
    assert_eq!(with(AXOLOTL, "adapter: lora\npeft_use_dora: true\n")["dora"], true);
    assert_eq!(with(&LLAMA_FACTORY.replace("full", "lora"), "use_dora: true\n")["dora"], true);
    assert_eq!(with(SWIFT, "use_dora: true\n")["dora"], true);
    assert_eq!(with(TORCHTUNE, "optimizer_in_bwd: True\n")["step-in-backward"], true);
    assert_eq!(with(AXOLOTL, "adapter: lora\npeft_use_rslora: true\n")["rslora"], true);
    assert_eq!(with(SWIFT, "use_rslora: true\n")["rslora"], true);
    for (parts, patterns) in [
        ("[^lm_head.weight$, 'model.layers.3']", "*,!lm_head.weight,!model.layers.3*"),
        ("['model\\.norm']", "*,!model.norm*"),
    ] {
        assert_eq!(with(AXOLOTL, &format!("unfrozen_parameters: {parts}\n"))["freeze"], patterns);
    }
    let pattern = counted(&format!("{AXOLOTL}unfrozen_parameters: ['layers.2[0-9]+.mlp']\n")).1;
    assert_eq!((refused(&pattern).len(), pattern.args.refusals[0].field), (1, Some("freeze")));
    let frozen = with(&SWIFT.replace("lora", "full"), "freeze_parameters: [model.embed_tokens, model.layers.0.]\n");
    assert_eq!(frozen["freeze"], "model.embed_tokens*,model.layers.0.*");
    for (base, bits, twice) in [
        (&LLAMA_FACTORY.replace("full", "lora"), "quantization_bit: 4\n", "double_quantization"),
        (&SWIFT.to_string(), "quant_bits: 4\nquant_method: bnb\n", "bnb_4bit_use_double_quant"),
    ] {
        assert_eq!(with(base, bits)["double-quant"], true);
        assert_eq!(with(base, &format!("{bits}{twice}: false\n"))["double-quant"], json!(null));
    }
}

/// Every key is a field, has no effect, is an error or a sentence, or is listed as unknown.
#[test]
fn every_key_is_named() {
    let (_, all) = counted(&format!("{AXOLOTL}micro_batch_sise: 3\nliger_rope: true\nval_set_size: 0.1\n"));
    assert_eq!(all.args.unknown, ["micro_batch_sise (did you mean micro_batch_size?)"]);
    assert_eq!(all.without_effect, ["datasets", "output_dir", "val_set_size", "wandb_project"]);
    for part in [
        "flash_attention_2 (counted as sdpa",
        "liger_rope=true (vramlab does not support Liger's kernels, which keep less)",
        "sample_packing=true",
    ] {
        assert!(all.args.left_out.iter().any(|what| what.starts_with(part)), "{part}: {:?}", all.args.left_out);
    }
    assert!(refused(&all).is_empty());
    for (base, more, named, field) in [
        (AXOLOTL, "fsdp_config: {fsdp_version: 2}\n", "fsdp_config=true", Some("data-parallel")),
        (
            AXOLOTL,
            "deepspeed: deepspeed_configs/zero3_bf16_cpuoffload_all.json\n",
            "deepspeed=deepspeed_configs/zero3_bf16_cpuoffload_all.json",
            Some("data-parallel"),
        ),
        (AXOLOTL, "tensor_parallel_size: 4\n", "tensor_parallel_size=4", Some("data-parallel")),
        (AXOLOTL, "rl: dpo\n", "rl=dpo", None),
        (AXOLOTL, "chunked_cross_entropy: true\n", "chunked_cross_entropy=true", Some("loss")),
        (AXOLOTL, "liger_cross_entropy: true\n", "liger_cross_entropy=true", Some("loss")),
        (AXOLOTL, "plugins: [axolotl.integrations.kd.KDPlugin]\n", "plugins=axolotl.integrations.kd.KDPlugin", None),
        (AXOLOTL, "adapter: llama-adapter\n", "adapter=llama-adapter", Some("lora")),
        (
            AXOLOTL,
            "adapter: lora\nlora_target_modules: ['layers.[0-9]+.q_proj']\n",
            "lora_target_modules=[\"layers.[0-9]+.q_proj\"]",
            Some("lora-target"),
        ),
        (LLAMA_FACTORY, "deepspeed: ds_z3.json\n", "deepspeed=ds_z3.json", Some("data-parallel")),
        (LLAMA_FACTORY, "use_galore: true\n", "use_galore=true", Some("optimizer")),
        (LLAMA_FACTORY, "neftune_noise_alpha: 5\n", "neftune_noise_alpha=5", None),
        (TRL, "activation_offloading: true\n", "activation_offloading=true", None),
        (SWIFT, "freeze_llm: true\n", "freeze_llm=true", Some("freeze")),
        (TORCHTUNE, "enable_fp8_training: True\n", "enable_fp8_training=true", None),
    ] {
        let (recipe, counted) = counted(&format!("{base}{more}"));
        assert_eq!(refused(&counted), [named], "{}", recipe.trainer);
        assert_eq!(counted.args.refusals[0].field, field, "{named}");
    }
    let pattern = "layers.[0-9]+.(q|k)_proj";
    let by_pattern = counted(&format!("{AXOLOTL}adapter: lora\nlora_target_modules: '{pattern}'\n")).1;
    assert_eq!((&by_pattern.args.fields["lora-target"], refused(&by_pattern).len()), (&pattern.into(), 0));
    let distributed = TORCHTUNE.replace("lora_finetune_single_device", "lora_finetune_distributed");
    assert_eq!(refused(&counted(&distributed).1), ["tune run=lora_finetune_distributed"]);
    assert_eq!(fields(counted(&distributed).1)["zero"], 3);
    for off in ["deepspeed:\n", "fsdp: []\n", "tensor_parallel_size: 1\n", "torch_compile: false\n", "relora: null\n"] {
        assert!(refused(&counted(&format!("{AXOLOTL}{off}")).1).is_empty(), "{off}");
    }
}

/// What divides a step among cards is a stage of ZeRO, and the number of cards is asked for.
#[test]
fn sharding_is_a_stage_of_zero() {
    let stage = |base: &str, more: &str| {
        let found = counted(&format!("{base}{more}")).1;
        assert!(
            found.args.refusals.iter().all(|refused| refused.field == Some("data-parallel")),
            "{:?}",
            refused(&found)
        );
        fields(found).get("zero").and_then(Value::as_u64)
    };
    for (base, more, expected) in [
        (AXOLOTL, "fsdp_config: {fsdp_version: 2}\n", Some(3)),
        (AXOLOTL, "fsdp: [full_shard, auto_wrap]\nfsdp_config: {fsdp_sharding_strategy: SHARD_GRAD_OP}\n", Some(2)),
        (AXOLOTL, "fsdp_config: {sharding_strategy: HYBRID_SHARD}\n", None),
        (AXOLOTL, "deepspeed: deepspeed_configs/zero1.json\n", Some(1)),
        (AXOLOTL, "deepspeed: other.json\n", None),
        (LLAMA_FACTORY, "deepspeed: examples/deepspeed/ds_z2_config.json\n", Some(2)),
        (SWIFT, "deepspeed: zero3\n", Some(3)),
    ] {
        assert_eq!(stage(base, more), expected, "{more}");
    }
}

/// Losses that never make all scores at once are counted in parts, and the answer says so.
#[test]
fn fused_losses_are_counted_in_parts() {
    let cuts = "plugins: [axolotl.integrations.cut_cross_entropy.CutCrossEntropyPlugin]\n";
    for more in ["liger_fused_linear_cross_entropy: true\n", "cut_cross_entropy: true\n", cuts] {
        let found = counted(&format!("{AXOLOTL}{more}")).1;
        assert!(refused(&found).is_empty(), "{more}: {:?}", refused(&found));
        assert!(found.args.left_out.iter().any(|what| what.contains("chunked:32")), "{:?}", found.args.left_out);
        let fields = fields(found);
        assert_eq!((&fields["loss"], fields.get("loop")), (&"chunked:32".into(), None), "{more}");
    }
    let off = counted(&format!("{AXOLOTL}{cuts}cut_cross_entropy: false\n")).1;
    assert!(fields(off).get("loss").is_none());
}

/// An optimizer that this program has is taken by any name of the recipe's, and another one is an error by that name.
#[test]
fn optimizers_are_known_or_named() {
    use lab_training::OptimizerKind;

    let with = |name: &str| counted(&AXOLOTL.replace("adamw_torch_fused", name)).1;
    assert_eq!(fields(with("adamw_torch"))["optimizer-impl"], "foreach");
    assert_eq!(refused(&with("came_pytorch")), ["optimizer=came_pytorch"]);
    let of_torchao = with("adamw_torch_4bit");
    assert!(
        of_torchao.args.left_out.iter().any(|what| what.contains("it needs less")),
        "{:?}",
        of_torchao.args.left_out
    );
    assert_eq!(fields(of_torchao)["optimizer"], "adamw8bit");
    for (name, here) in
        [("adamw_bnb_8bit", "adamw8bit"), ("paged_adamw_8bit", "paged-adamw8bit"), ("adafactor", "adafactor")]
    {
        let counted = with(name);
        match OptimizerKind::parse(here) {
            Ok(_) => assert_eq!(fields(counted)["optimizer"], here),
            Err(_) => assert_eq!(refused(&counted), [format!("optimizer={name}")]),
        }
    }
}

#[test]
fn other_files_are_no_recipes_or_say_of_what() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.yaml");
    let read = |text: &str| {
        std::fs::write(&path, text).unwrap();
        Recipe::read(&path)
    };
    for text in [
        "a: 1\n",
        "- 1\n",
        "output_dir: out\nper_device_train_batch_size: 2\n",
        "model_name_or_path: gpt2\ndo_train: true\ndataset_name: x\n",
    ] {
        assert!(read(text).unwrap().is_none(), "{text}");
    }
    for (text, part) in [
        ("compute_environment: LOCAL_MACHINE\nnum_processes: 8\n", "configures accelerate"),
        ("model: org/small\nmicro_batch_size: 1\nlora_rank: 8\n", "Megatron"),
        ("model_name_or_path: org/small\nexport_dir: out\ntemplate: qwen\n", "not a training"),
        ("base_model: [\n", "a.yaml"),
    ] {
        let error = read(text).unwrap_err().to_string();
        assert!(error.contains(part), "{text}: {error}");
    }
    let wrong = read("base_model: org/small\nmicro_batch_size: four\n").unwrap().unwrap();
    let error = wrong.counted(&Around::default()).unwrap_err().to_string();
    assert!(error.contains("micro_batch_size=four: expected a whole number"), "{error}");
}

/// No key stands twice in a table, or in it and among the arguments that it would hide by mistake.
#[test]
fn no_key_has_two_effects() {
    for table in [axolotl::KEYS, llama_factory::KEYS, llama_factory_v1::KEYS, trl::KEYS, torchtune::KEYS, swift::KEYS] {
        let mut seen = std::collections::BTreeSet::new();
        for name in table.iter().flat_map(|(_, names)| names.iter()) {
            assert!(seen.insert(name), "{name} stands twice");
        }
    }
}

#[test]
fn the_second_version_of_llama_factory_is_counted() {
    assert_eq!(
        fields(counted(LLAMA_FACTORY_V1).1),
        json!({"batch": 4, "sequence": 1024, "lr": 1e-4, "optimizer": "adamw", "optimizer-impl": "foreach", "checkpoint": "blocks", "precision": "bf16",
            "clip-grad-norm": 1.0, "attention": "sdpa", "keep": "loss", "lora": 16, "lora-target": "all-linear", "lora-dropout": 0.05,
            "load-in-4bit": true, "double-quant": true})
    );
    let changed = |from: &str, to: &str| counted(&LLAMA_FACTORY_V1.replace(from, to)).1;
    let divided = changed("dist_config: null", "dist_config:\n  name: fsdp2");
    assert_eq!((refused(&divided), &divided.args.fields["zero"]), (vec!["dist_config.name=fsdp2"], &json!(3)));
    assert_eq!(refused(&changed("name: lora", "name: freeze")), ["peft_config.name=freeze"]);
    assert_eq!(refused(&changed("data/sft.yaml", "data/dpo.yaml")), ["train_dataset=data/dpo.yaml"]);
    let muon = changed("dist_config: null", "optim_config:\n  name: muon");
    assert_eq!(muon.args.fields["optimizer"], "muon");
}

#[test]
fn what_recurs_in_examples_is_counted() {
    let phi =
        TORCHTUNE.replace("lora_llama3_2_1b", "lora_phi3_mini").replace("'output_proj'", "'k_proj', 'output_proj'");
    assert_eq!(counted(&phi).1.args.fields["lora-target"], "qkv_proj,o_proj,gate_up_proj,down_proj");
    let more = counted(&format!("{TORCHTUNE}compile: True\nenable_activation_offloading: True\n")).1;
    assert_eq!((refused(&more), &more.args.fields["save-on-cpu"]), (vec![], &json!("pinned")));
    assert!(
        more.args.left_out.iter().any(|how| how.starts_with("compile=true (counted without it")),
        "{:?}",
        more.args
    );
    for key in ["gradient_checkpointing: offload", "gradient_checkpointing: true\nactivation_offloading: true"] {
        let text = AXOLOTL.replace("gradient_checkpointing: true", key);
        let kept = counted(&format!("{text}torch_compile: true\n")).1;
        assert_eq!((refused(&kept), &kept.args.fields["save-on-cpu"]), (vec![], &json!("pinned")), "{key}");
        assert_eq!(kept.args.fields["checkpoint"], "blocks");
        let divided = counted(&format!("{text}fsdp_config:\n  fsdp_version: 2\n")).1;
        assert!(!divided.args.fields.contains_key("save-on-cpu") && refused(&divided).len() == 2, "{key}");
    }
    let muon = counted(&format!("{LLAMA_FACTORY}use_muon: true\n")).1;
    assert_eq!((refused(&muon), &muon.args.fields["optimizer"]), (vec![], &json!("muon")));
    let asks = LLAMA_FACTORY.replace("do_train: true", "do_predict: true");
    assert!(Recipe::of_text("a.yaml", &asks).unwrap_err().to_string().contains("not a training"));
}
