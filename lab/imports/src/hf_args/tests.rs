use serde_json::json;

use super::*;

fn read_json(arguments: Value) -> HfArgs {
    let Value::Object(arguments) = arguments else { panic!("arguments have names") };
    of(&arguments, "args.json").unwrap()
}

#[test]
fn what_decides_memory_becomes_a_field() {
    let found = read_json(json!({
        "output_dir": "out", "per_device_train_batch_size": 4, "gradient_accumulation_steps": 8, "gradient_checkpointing": true,
        "bf16": true, "fp16": false, "optim": "adamw_torch_fused", "learning_rate": 2e-5, "max_grad_norm": 0.5, "max_seq_length": 2048,
        "tf32": null, "deepspeed": null, "fsdp": [], "label_smoothing_factor": 0.0, "attn_implementation": "sdpa",
    }));
    let fields = json!({
        "batch": 4, "accumulate": 8, "checkpoint": "blocks", "optimizer": "adamw", "optimizer-impl": "fused", "lr": 2e-5,
        "clip-grad-norm": 0.5, "sequence": 2048, "attention": "sdpa", "loop": "trainer", "precision": "autocast-bf16",
    });
    assert_eq!(Value::Object(found.fields), fields);
    assert!(found.refusals.is_empty() && found.left_out.is_empty() && found.unknown.is_empty());
}

#[test]
fn the_type_of_weights_and_autocast_make_one_precision() {
    for (arguments, precision) in [
        (json!({"bf16": true}), Some("autocast-bf16")),
        (json!({"fp16": true}), Some("autocast-fp16")),
        (json!({"torch_dtype": "bfloat16"}), Some("bf16")),
        (json!({"dtype": "torch.bfloat16", "bf16": true}), Some("bf16-autocast-bf16")),
        (json!({"torch_dtype": "float32"}), Some("fp32")),
        (json!({"torch_dtype": "auto"}), None),
        (json!({}), None),
    ] {
        let found = read_json(arguments.clone());
        assert_eq!(found.fields.get("precision").and_then(Value::as_str), precision, "{arguments}");
    }
}

#[test]
fn what_is_not_represented_is_named() {
    for (arguments, named, field) in [
        (json!({"optim": "paged_adamw_8bit"}), "optim=paged_adamw_8bit", Some("optimizer")),
        (json!({"deepspeed": "ds.json"}), "deepspeed=ds.json", None),
        (json!({"fsdp": ["full_shard"]}), "fsdp=[\"full_shard\"]", None),
        (json!({"torch_compile": true}), "torch_compile=true", None),
        (json!({"use_peft": true}), "use_peft=true", None),
        (
            json!({"attn_implementation": "flash_attention_2"}),
            "attn_implementation=flash_attention_2",
            Some("attention"),
        ),
        (json!({"max_grad_norm": 0}), "max_grad_norm=0", Some("clip-grad-norm")),
    ] {
        let refused = read_json(arguments).refusals;
        assert_eq!(refused, [Refused { argument: named.into(), field }]);
    }
    let found = read_json(json!({"eval_strategy": "steps", "my_own": 3, "model_name_or_path": "gpt2"}));
    assert!(found.left_out[0].contains("evaluation is not counted"), "{:?}", found.left_out);
    assert_eq!(found.unknown, ["my_own"]);
    let wrong = of(json!({"per_device_train_batch_size": "four"}).as_object().unwrap(), "args.json");
    assert!(wrong.unwrap_err().to_string().contains("per_device_train_batch_size=four: expected a whole number"));
}

#[test]
fn files_of_all_kinds_say_the_same() {
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/golden/hf_args");
    let of = |file: &str| read(&golden.join(file)).unwrap();
    let (json, bin) = (of("training_args.json"), of("training_args.bin"));
    assert_eq!(json.fields, bin.fields);
    assert_eq!(json.fields["batch"], 4);
    assert_eq!(
        (bin.unknown.as_slice(), json.unknown.as_slice()),
        (&[][..], &[][..]),
        "every name of release 5.23 is known"
    );
    let yaml = of("recipe.yaml");
    for field in ["batch", "accumulate", "checkpoint", "lr", "loop"] {
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
        let error = read(&path).unwrap_err().to_string();
        assert!(error.contains(name) && error.contains(why), "{name}: {error}");
    }
    // Aliases of aliases: a few hundred bytes that stand for more than a machine holds.
    let mut bomb = "a: &a [x,x,x,x,x,x,x,x,x]\n".to_string();
    for (one, next) in ('a'..='y').zip('b'..='z') {
        bomb += &format!("{next}: &{next} [{}]\n", vec![format!("*{one}"); 9].join(","));
    }
    let path = folder.path().join("bomb.yaml");
    std::fs::write(&path, bomb).unwrap();
    assert!(read(&path).is_err());
}
