use serde_json::json;

use super::*;
use crate::huggingface::Configuration;

fn read_json(arguments: Value) -> HfArgs {
    beside(arguments, &Around::default())
}

fn beside(arguments: Value, around: &Around<'_>) -> HfArgs {
    let Value::Object(arguments) = arguments else { panic!("arguments have names") };
    counted(&arguments, "args.json", around).unwrap()
}

/// A `config.json` with these keys, in a folder that is removed after the test.
fn config(keys: Value) -> (tempfile::TempDir, std::path::PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("config.json");
    std::fs::write(&path, keys.to_string()).unwrap();
    (folder, path)
}

#[test]
fn what_decides_memory_becomes_a_field() {
    let (_folder, path) = config(json!({}));
    let around = Around { config: Some(Configuration::File(&path)), ..Around::default() };
    let arguments = json!({
        "output_dir": "out", "per_device_train_batch_size": 4, "gradient_accumulation_steps": 8, "gradient_checkpointing": true,
        "bf16": true, "fp16": false, "optim": "adamw_torch_fused", "learning_rate": 2e-5, "max_grad_norm": 0.5, "max_seq_length": 2048,
        "tf32": null, "deepspeed": null, "fsdp": [], "label_smoothing_factor": 0.0, "attn_implementation": "sdpa",
    });
    let found = beside(arguments, &around);
    let fields = json!({
        "batch": 4, "accumulate": 8, "checkpoint": "blocks", "optimizer": "adamw", "optimizer-impl": "fused", "lr": 2e-5,
        "clip-grad-norm": 0.5, "sequence": 2048, "attention": "sdpa", "loop": "trainer", "precision": "autocast-bf16",
    });
    assert_eq!(Value::Object(found.fields), fields);
    assert!(found.refusals.is_empty() && found.left_out.is_empty() && found.unknown.is_empty());
}

#[test]
fn the_type_of_weights_and_autocast_make_one_precision() {
    let of_bf16 = json!({"dtype": "bfloat16"});
    let release_4 = json!({"no_cuda": false});
    for (arguments, config_says, precision) in [
        (json!({"bf16": true}), json!({}), Some("autocast-bf16")),
        (json!({"fp16": true}), json!({}), Some("autocast-fp16")),
        (json!({"torch_dtype": "bfloat16"}), json!({}), Some("bf16")),
        (json!({"dtype": "torch.bfloat16", "bf16": true}), json!({}), Some("bf16-autocast-bf16")),
        (json!({"model_init_kwargs": {"dtype": "bfloat16"}, "bf16": true}), json!({}), Some("bf16-autocast-bf16")),
        (json!({"torch_dtype": "float32"}), of_bf16.clone(), Some("fp32")),
        (json!({"torch_dtype": "auto"}), of_bf16.clone(), None),
        (json!({"seed": 1}), of_bf16.clone(), None),
        // Release 5 loads the type of the file, and autocast is over it; release 4 loads float32; so does TRL.
        (json!({"bf16": true}), of_bf16.clone(), Some("bf16-autocast-bf16")),
        (json!({"bf16": true, "no_cuda": false}), of_bf16.clone(), Some("autocast-bf16")),
        (json!({"bf16": true, "packing": false}), of_bf16.clone(), Some("autocast-bf16")),
        (release_4, of_bf16, None),
    ] {
        let (_folder, path) = config(config_says.clone());
        let found =
            beside(arguments.clone(), &Around { config: Some(Configuration::File(&path)), ..Around::default() });
        assert_eq!(found.fields.get("precision").and_then(Value::as_str), precision, "{arguments} {config_says}");
        assert!(found.refusals.is_empty(), "{arguments} {config_says}");
    }
    let (_folder, path) = config(json!({"torch_dtype": "float16"}));
    let around = Around { config: Some(Configuration::File(&path)), ..Around::default() };
    for argument in ["fp16", "bf16"] {
        let refused = beside(json!({ argument: true }), &around).refusals;
        let argument = format!("{argument}=true over float16 weights");
        assert_eq!(refused, [Refused { argument, field: Some("precision") }]);
    }
}

/// The `Trainer` of release 5.23 is supported, and no other: a file of arguments takes what there is, and says so.
#[test]
fn arguments_never_ask_for_a_loop_that_is_not_represented() {
    let (_folder, of_4) = config(json!({"transformers_version": "4.45.0.dev0", "torch_dtype": "bfloat16"}));
    let (_other, of_5) = config(json!({"transformers_version": "5.2.0"}));
    let release = |text: &str| Some(text.parse().unwrap());
    let plain = json!({
        "optimizer": "adamw", "optimizer-impl": "foreach", "lr": 5e-5, "weight-decay": 0.0, "clip-grad-norm": 1.0, "keep": "loss", "batch": 4
    });
    let with = |fields: &Value, more: Value| {
        let mut fields = fields.as_object().unwrap().clone();
        fields.extend(more.as_object().unwrap().clone());
        Value::Object(fields)
    };
    let arguments = json!({"per_device_train_batch_size": 4});
    let of_release_4 = with(&arguments, json!({"overwrite_output_dir": false}));
    let around = |config: &'static str| match config {
        "4" => Around { config: Some(Configuration::File(&of_4)), ..Around::default() },
        "5" => Around { config: Some(Configuration::File(&of_5)), ..Around::default() },
        _ => Around::default(),
    };
    for (arguments, around, fields, note) in [
        (&arguments, around("5"), json!({"loop": "trainer", "batch": 4}), ""),
        // The release that once saved the network's file decides nothing.
        (&arguments, around("4"), json!({"loop": "trainer", "batch": 4}), ""),
        (
            &of_release_4,
            around("4"),
            with(&plain, json!({"transformers": "4.57"})),
            "the Trainer of transformers 4.57, and assumes a plain loop",
        ),
        (
            &of_release_4,
            around("5"),
            with(&plain, json!({"transformers": "4.57"})),
            "the Trainer of transformers 4.57, and assumes a plain loop",
        ),
        (
            &arguments,
            Around { release: release("4.51"), ..around("4") },
            plain.clone(),
            "vramlab does not support the Trainer of transformers 4.51",
        ),
        (&of_release_4, Around { release: release("5.23"), ..around("4") }, json!({"loop": "trainer", "batch": 4}), ""),
    ] {
        let found = beside(arguments.clone(), &around);
        assert_eq!(Value::Object(found.fields), fields, "{arguments} {around:?}");
        assert!(found.left_out.len() == usize::from(!note.is_empty()), "{arguments} {around:?}");
        assert!(found.left_out.iter().all(|said| said.contains(note)), "{:?}", found.left_out);
    }
    // Around a network that is not a config.json, a plain loop; where a flag says one, nothing is said of it.
    let found = beside(arguments.clone(), &Around::default());
    assert_eq!((found.fields.get("loop"), &found.fields["optimizer-impl"]), (None, &Value::from("fused")));
    assert!(found.left_out[0].contains("around a config.json"), "{:?}", found.left_out);
    let found = beside(arguments, &Around { script: Some(crate::huggingface::Script::Plain), ..around("4") });
    assert!(found.left_out.is_empty() && !found.fields.contains_key("loop"), "{found:?}");
}

#[test]
fn a_trainer_that_clips_nothing_is_refused_and_a_plain_loop_does_it() {
    let (_folder, path) = config(json!({}));
    let around = Around { config: Some(Configuration::File(&path)), ..Around::default() };
    for norm in [json!(0), json!(0.0), json!(null)] {
        let arguments = json!({"output_dir": "out", "max_grad_norm": norm});
        let refused = beside(arguments.clone(), &around).refusals;
        assert_eq!(refused[0].field, Some("clip-grad-norm"), "{arguments}");
        let plain = beside(arguments, &Around { release: Some("4.57".parse().unwrap()), ..around });
        assert!(plain.refusals.is_empty() && !plain.fields.contains_key("clip-grad-norm"), "{plain:?}");
    }
}

#[test]
fn what_is_not_represented_is_named() {
    for (arguments, named, field) in [
        (json!({"optim": "galore_adamw"}), "optim=galore_adamw", Some("optimizer")),
        (json!({"deepspeed": "ds.json"}), "deepspeed=ds.json", Some("data-parallel")),
        (json!({"fsdp": ["full_shard"]}), "fsdp=[\"full_shard\"]", Some("data-parallel")),
        (json!({"torch_compile": true}), "torch_compile=true", None),
        (json!({"use_lora": true}), "use_lora=true", None),
        (json!({"optim": "adamw_torch_8bit"}), "optim=adamw_torch_8bit", Some("optimizer")),
        (json!({"optim": "adamw_torch_4bit"}), "optim=adamw_torch_4bit", Some("optimizer")),
        (
            json!({"attn_implementation": "flash_attention_2"}),
            "attn_implementation=flash_attention_2",
            Some("attention"),
        ),
        (json!({"beta": 0.1}), "beta=0.1", None),
        (json!({"tp_size": 4}), "tp_size=4", None),
        (
            json!({"model_init_kwargs": {"attn_implementation": "flex_attention"}}),
            "attn_implementation=flex_attention",
            Some("attention"),
        ),
        (
            json!({"accelerator_config": {"gradient_accumulation_kwargs": {"num_steps": 4}}}),
            "accelerator_config={\"gradient_accumulation_kwargs\":{\"num_steps\":4}}",
            Some("accumulate"),
        ),
    ] {
        let refused = read_json(arguments).refusals;
        assert_eq!(refused, [Refused { argument: named.into(), field }]);
    }
    let found =
        read_json(json!({"eval_strategy": "steps", "my_own": 3, "use_cpu": true, "model_name_or_path": "gpt2"}));
    assert!(found.left_out[0].contains("evaluation is not counted"), "{:?}", found.left_out);
    assert_eq!(found.unknown, ["my_own"]);
    for (arguments, why) in [
        (json!({"per_device_train_batch_size": "four"}), "per_device_train_batch_size=four: expected a whole number"),
        (json!({"gradient_accumulation_steps": -1}), "gradient_accumulation_steps=-1: expected a whole number"),
        (json!({"learning_rate": [1]}), "learning_rate=[1]: expected a number"),
        (json!({"weight_decay": "nan"}), "weight_decay=nan: expected a number"),
        (json!({"gradient_checkpointing": "yes"}), "gradient_checkpointing=yes: expected true or false"),
        (json!({"bf16": 1}), "bf16=1: expected true or false"),
        (json!({"model_init_kwargs": "x"}), "model_init_kwargs=x: expected arguments by name"),
        (json!({"my_own": 1}), "none of its names is an argument of transformers"),
        (json!({}), "none of its names is an argument of transformers"),
        (json!({"architectures": ["GPT2LMHeadModel"], "model_type": "gpt2"}), "vramlab predict takes it"),
    ] {
        let wrong = counted(arguments.as_object().unwrap(), "args.json", &Around::default());
        let wrong = wrong.unwrap_err().to_string();
        assert!(wrong.contains(why), "{wrong}");
    }
}

/// TRL's `ModelConfig`, as it is dumped: without `use_peft` its ranks mean nothing.
#[test]
fn adapters_and_bits_become_fields() {
    let of_all = json!({"use_peft": true, "lora_r": 32, "lora_alpha": 16, "lora_dropout": 0, "lora_target_modules": ["q_proj", "v_proj"],
                        "use_dora": true, "use_rslora": true, "load_in_4bit": true, "bnb_4bit_quant_type": "fp4", "use_bnb_nested_quant": true});
    for (arguments, fields) in [
        (json!({"use_peft": true}), json!({"lora": 16, "lora-dropout": 0.05})),
        (
            json!({"use_peft": false, "lora_r": 8, "use_dora": true, "load_in_4bit": false, "use_bnb_nested_quant": true}),
            json!({}),
        ),
        (
            of_all,
            json!({"lora": 32, "lora-target": "q_proj,v_proj", "dora": true, "rslora": true, "load-in-4bit": true, "double-quant": true}),
        ),
        (
            json!({"use_peft": true, "lora_r": 8, "lora_dropout": 0.1, "lora_target_modules": "all-linear", "load_in_8bit": true, "lora_modules_to_save": ["lm_head"]}),
            json!({"modules-to-save": "lm_head", "lora": 8, "lora-dropout": 0.1, "lora-target": "all-linear", "load-in-8bit": true}),
        ),
    ] {
        let found = read_json(arguments.clone());
        assert_eq!(Value::Object(found.fields), fields, "{arguments}");
        assert!(found.refusals.is_empty() && found.unknown.is_empty(), "{arguments}");
    }
    for (more, named, field) in [
        (
            json!({"lora_target_modules": "layers.[0-9]+.q_proj"}),
            "lora_target_modules=layers.[0-9]+.q_proj",
            Some("lora-target"),
        ),
        (json!({"lora_target_parameters": ["experts.w1"]}), "lora_target_parameters=[\"experts.w1\"]", None),
        (json!({"bnb_4bit_quant_storage": "bfloat16"}), "bnb_4bit_quant_storage=bfloat16", None),
    ] {
        let mut arguments = json!({"use_peft": true});
        arguments.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        assert_eq!(read_json(arguments).refusals, [Refused { argument: named.into(), field }]);
    }
    for wrong in [
        json!({"lora_r": 0}),
        json!({"lora_r": "x"}),
        json!({"lora_dropout": 1}),
        json!({"load_in_4bit": true, "load_in_8bit": true}),
    ] {
        let mut arguments = json!({"use_peft": true});
        arguments.as_object_mut().unwrap().extend(wrong.as_object().unwrap().clone());
        assert!(counted(arguments.as_object().unwrap(), "args.json", &Around::default()).is_err(), "{arguments}");
    }
}

/// A recorded Trainer has adapters, but no weights of few bits.
#[test]
fn weights_of_few_bits_have_a_plain_loop() {
    let (_folder, path) = config(json!({"dtype": "bfloat16"}));
    let around = Around { config: Some(Configuration::File(&path)), ..Around::default() };
    let with = |bits: bool| {
        let arguments = json!({"output_dir": "out", "use_peft": true, "load_in_4bit": bits, "dtype": "bfloat16", "bf16": true, "optim": "paged_adamw_8bit"});
        beside(arguments, &around).fields
    };
    let (plain, four) = (with(false), with(true));
    assert_eq!((plain.get("loop"), four.get("loop")), (Some(&json!("trainer")), None));
    assert_eq!(
        (&four["precision"], &four["optimizer"], &four["keep"]),
        (&json!("bf16-autocast-bf16"), &json!("paged-adamw8bit"), &json!("loss"))
    );
}

#[test]
fn reentrant_checkpointing_of_release_4_is_told() {
    let told = |arguments: Value| read_json(arguments).left_out.iter().any(|what| what.contains("use_reentrant=True"));
    let of_4 = json!({"gradient_checkpointing": true, "evaluation_strategy": "no"});
    assert!(told(of_4));
    assert!(!told(json!({"gradient_checkpointing": false, "evaluation_strategy": "no"})));
    let kwargs = json!({"use_reentrant": false});
    assert!(!told(
        json!({"gradient_checkpointing": true, "gradient_checkpointing_kwargs": kwargs, "evaluation_strategy": "no"})
    ));
}

#[test]
fn files_of_all_kinds_say_the_same() {
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/hf_args");
    let around = Around::default();
    let of = |file: &str| read(&golden.join(file), &around).unwrap();
    let (json, bin) = (of("training_args.json"), of("training_args.bin"));
    assert_eq!(json.fields, bin.fields);
    assert_eq!(json.fields["batch"], 4);
    assert_eq!(
        (bin.unknown.as_slice(), json.unknown.as_slice()),
        (&[][..], &[][..]),
        "every name of release 5.23 is known"
    );
    let yaml = of("recipe.yaml");
    for field in ["batch", "accumulate", "checkpoint", "lr"] {
        assert_eq!(yaml.fields.get(field), json.fields.get(field), "{field}");
    }
}

#[test]
fn other_files_are_refused_with_a_reason() {
    let folder = tempfile::tempdir().unwrap();
    for (name, contents, why) in [
        ("a.json", &b"[1, 2]"[..], "no arguments by name"),
        ("b.json", b"{\"a\": ", "EOF"),
        ("c.yaml", b"a: [1", ""),
        ("d.bin", b"PK\x03\x04nonsense", ""),
        ("e.bin", b"\x80\x02cos\nsystem\nX\x01\x00\x00\x00a\x85R.", "no arguments by name"),
        ("f.txt", b"\xff\xfe", "neither JSON"),
    ] {
        let path = folder.path().join(name);
        std::fs::write(&path, contents).unwrap();
        let error = read(&path, &Around::default()).unwrap_err().to_string();
        assert!(error.contains(name) && error.contains(why), "{name}: {error}");
    }
    // Aliases of aliases: a few hundred bytes that stand for more than a machine holds.
    let mut bomb = "a: &a [x,x,x,x,x,x,x,x,x]\n".to_string();
    for (one, next) in ('a'..='y').zip('b'..='z') {
        bomb += &format!("{next}: &{next} [{}]\n", vec![format!("*{one}"); 9].join(","));
    }
    let path = folder.path().join("bomb.yaml");
    std::fs::write(&path, bomb).unwrap();
    assert!(read(&path, &Around::default()).is_err());
}

/// No bytes make the reader panic: every file with each of its bytes changed, and cut at each.
#[test]
fn damaged_files_are_errors_or_arguments() {
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/hf_args");
    let folder = tempfile::tempdir().unwrap();
    let mut read_whole = 0;
    for file in ["training_args.json", "training_args.bin", "recipe.yaml"] {
        let bytes = std::fs::read(golden.join(file)).unwrap();
        let path = folder.path().join(file);
        let stride = bytes.len() / 400 + 1;
        for at in (0..bytes.len()).step_by(stride) {
            let mut flipped = bytes.clone();
            flipped[at] ^= 0x5a;
            for damaged in [&flipped[..], &bytes[..at]] {
                std::fs::write(&path, damaged).unwrap();
                read_whole += usize::from(read(&path, &Around::default()).is_ok());
            }
        }
    }
    // A letter of a text is changed here and there.
    assert!(read_whole > 0);
}
