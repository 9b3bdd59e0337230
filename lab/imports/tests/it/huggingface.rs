//! Networks of the transformers library from their configuration: refusals, keys that are ignored on purpose, training.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::transformers::{read, recompute, small, typed};
use backend_cpu::Cpu;
use conformance::Reference;
use lab_base::Error;
use lab_imports::huggingface::{
    Attention, AttentionMask, Configuration, Keep, Known, LoadAs, MODEL_TYPES, Options, Pretrained, known, parse,
    train, train_from, trainer,
};
use lab_training::record::Row;
use lab_training::{
    Begin, Continuation, OptimizerKind, OptimizerSettings, Precision, RunResult, RunSettings, Schedule, Source,
    StateFile,
};
use memcore::backend::{Backend, DeviceProfile, Meta};
use memcore::{DType, Device, Profile};
use serde_json::{Value, json};

/// Another batch in each step.
const SOURCE: Source = Source::Renewed { seed: 7 };

fn settings(batch: usize, steps: usize, precision: Precision) -> RunSettings {
    let optimizer = OptimizerSettings::new(OptimizerKind::AdamW, 3e-3);
    RunSettings { precision, seed: 7, ..RunSettings::new(batch, steps, optimizer) }
}

fn run(backend: Arc<dyn Backend>, profile: Profile, model: &Pretrained, settings: &RunSettings) -> RunResult {
    let device = Device::builder(backend).profile(profile).build();
    train(model, &device, settings, SOURCE, Keep::Output, &mut |_| ControlFlow::Continue(())).unwrap()
}

/// A device that computes needs the same memory as one that does not, and the loss falls.
#[test]
fn every_kind_learns_and_takes_what_was_predicted() {
    for model_type in MODEL_TYPES {
        for (attention, checkpoint) in [(Attention::Sdpa, false), (Attention::Eager, true)] {
            let options = Options { attention, checkpoint: recompute(checkpoint), ..Options::default() };
            let model = read(&typed(model_type, small(model_type)), &options);
            let settings = settings(4, 12, Precision::Fp32);
            let computed = run(Arc::new(Reference::default()), Profile::torch_2_11(90), &model, &settings);
            let predicted =
                run(Arc::new(Meta::new(DeviceProfile::default())), Profile::torch_2_11(90), &model, &settings);
            assert_eq!(computed.rows, predicted.rows, "{model_type} {attention:?}");
            assert_eq!(computed.parameters, predicted.parameters);
            // Batches are random and differ, but in BERT a token is its own label, and all networks learn priors.
            let [first, last] = [computed.losses[0], computed.losses[11]];
            assert!(computed.losses.iter().all(|loss| loss.is_finite()), "{model_type}: {:?}", computed.losses);
            assert!(last < first + 0.2, "{model_type} {attention:?}: {first} to {last}");
        }
    }
}

/// Unfused and fused attention are the same function, also with a window.
#[test]
fn both_kinds_of_attention_agree() {
    for model_type in ["opt", "gpt_neox", "llama", "mistral", "t5", "vit"] {
        let loss = |attention| {
            let mut config = small(model_type);
            if model_type == "mistral" {
                config["sliding_window"] = json!(5);
            }
            for dropout in ["dropout", "dropout_rate", "hidden_dropout"] {
                config[dropout] = json!(0.0);
            }
            let model = read(&typed(model_type, config), &Options { attention, ..Options::default() });
            run(Arc::new(Reference::default()), Profile::native(), &model, &settings(2, 1, Precision::Fp32)).losses[0]
        };
        let (eager, fused) = (loss(Attention::Eager), loss(Attention::Sdpa));
        assert!((eager - fused).abs() < 1e-4, "{model_type}: {eager} and {fused}");
    }
}

fn refusal(config: &Value, options: &Options) -> String {
    match parse("config.json", &config.to_string(), options) {
        Err(error @ Error::Usage { .. }) => error.to_string(),
        Err(error) => panic!("{error}"),
        Ok(_) => panic!("{config} was accepted"),
    }
}

#[test]
fn what_is_not_represented_is_refused_by_name() {
    let with = |model_type: &str, key: &str, value: Value| {
        let mut config = typed(model_type, small(model_type));
        config[key] = value;
        config
    };
    for (config, words) in [
        (json!({}), "model_type"),
        (json!({ "model_type": "umt5" }), "known: bert, camembert"),
        (json!({ "model_type": "t5" }), "decoder_start_token_id: is missing"),
        (with("t5", "is_encoder_decoder", json!(false)), "alone is not supported"),
        (with("t5", "feed_forward_proj", json!("geglu-gelu")), "neither an activation nor"),
        (with("t5", "is_gated_act", json!(false)), "says another thing"),
        (with("t5", "relative_attention_max_distance", json!(4)), "8 buckets up to a distance of 4"),
        (with("llama", "is_encoder_decoder", json!(true)), "encoders with decoders"),
        (with("llama", "quantization_config", json!({ "bits": 4 })), "quantization_config"),
        (with("llama", "rope_scaling", json!({ "rope_type": "ntk", "factor": 2.0 })), "\"ntk\" is not supported"),
        (with("llama", "rope_scaling", json!({ "rope_type": "linear" })), "needs the number factor"),
        (with("llama", "num_key_value_heads", json!(3)), "3 does not divide 4"),
        (with("llama", "hidden_size", json!("wide")), "hidden_size: \"wide\" is not a number"),
        (with("llama", "hidden_act", json!("relu6")), "unknown activation \"relu6\""),
        (with("llama", "sliding_window", json!(8)), "has no window"),
        (with("mistral", "layer_types", json!(["full_attention", "sliding_attention"])), "than sliding_window"),
        (with("qwen2", "layer_types", json!(["sliding_attention", "sliding_attention"])), "than sliding_window"),
        (with("qwen2", "layer_types", json!(["full_attention"])), "for 2 layers"),
        (with("qwen2", "layer_types", json!("full_attention")), "not a list of names"),
        (with("qwen2", "max_window_layers", json!(-1)), "not a number from 0"),
        (with("gpt2", "n_head", json!(5)), "5 does not divide 32"),
        (with("gpt2", "hidden_size", json!(64)), "hidden_size: write n_embd"),
        (with("gpt2", "n_layer", json!(1u64 << 40)), "at most 10000"),
        (with("gpt2", "add_cross_attention", json!(true)), "cross-attention"),
        (with("gpt2", "resid_pdrop", json!(1.5)), "outside 0..1"),
        (with("opt", "layerdrop", json!(0.1)), "layerdrop"),
        (with("bert", "is_decoder", json!(true)), "is_decoder"),
        (with("opt", "sliding_window", json!(4)), "has no window"),
        (with("gpt_neox", "layer_types", json!(["sliding_attention"])), "see everything"),
        (with("gpt2", "gradient_checkpointing", json!(true)), "--checkpoint blocks"),
        (with("qwen2", "attn_implementation", json!("eager")), "asked for with \"sdpa\""),
        (with("qwen2", "is_causal", json!(false)), "is_causal"),
        (with("llama", "per_layer_config", json!({ "0": {} })), "per_layer_config"),
        (json!({ "model_type": "mixtral" }), "does not support"),
        (with("phi3", "rope_scaling", json!({ "rope_type": "yarn", "factor": 2.0 })), "default and longrope"),
        (with("phi3", "rope_scaling", json!({ "rope_type": "longrope", "short_factor": [1.0] })), "list of numbers"),
        (
            with("phi3", "rope_scaling", json!({ "rope_type": "longrope", "short_factor": [1], "long_factor": [1] })),
            "need 2 numbers",
        ),
        (with("phi3", "partial_rotary_factor", json!(0.05)), "0 of 8 elements"),
        (with("gemma", "use_bidirectional_attention", json!(true)), "both directions"),
        (with("qwen3", "attention_bias", json!(1)), "neither true nor false"),
        (with("roberta", "max_position_embeddings", json!(2)), "no position after"),
        (with("roberta", "tie_word_embeddings", json!(false)), "output layer of its own"),
        (with("distilbert", "sinusoidal_pos_embds", json!(true)), "not trained"),
        (with("distilbert", "hidden_size", json!(32)), "hidden_size: write dim"),
        (with("vit", "problem_type", json!("regression")), "problem_type"),
    ] {
        let said = refusal(&config, &Options::default());
        assert!(said.contains(words), "{said:?} does not say {words:?}");
    }
    let long = Options { sequence: Some(17), ..Options::default() };
    assert!(refusal(&typed("gpt2", small("gpt2")), &long).contains("16 positions"));
    let masked = |attention_mask, sequence| Options { attention_mask, sequence, ..Options::default() };
    let of_images = refusal(&typed("vit", small("vit")), &masked(AttentionMask::Full, None));
    assert!(of_images.contains("images have no attention_mask"), "{of_images}");
    let short = refusal(&typed("gpt2", small("gpt2")), &masked(AttentionMask::Padded, Some(2)));
    assert!(short.contains("no padding"), "{short}");
    let one = refusal(&with("mistral", "sliding_window", json!(1)), &masked(AttentionMask::None, Some(1)));
    assert!(one.contains("sliding_window"), "{one}");
    assert!(matches!(parse("config.json", "{", &Options::default()), Err(Error::Usage { .. })));
    assert!(matches!(parse("config.json", "[]", &Options::default()), Err(Error::Usage { .. })));
}

/// Checked with `from_pretrained` of release 5.23: `dtype` before `torch_dtype`, null is absent, aliases of `torch` are names too.
#[test]
fn weights_are_loaded_in_the_type_that_the_file_names() {
    let loaded = |keys: Value, load_as| {
        let mut config = typed("gpt2", small("gpt2"));
        keys.as_object().unwrap().iter().for_each(|(key, value)| config[key] = value.clone());
        let model = read(&config, &Options { load_as, ..Options::default() });
        assert_eq!(model.warnings, Vec::<String>::new());
        model.loaded_type().map_err(|error| error.to_string())
    };
    for (keys, expected) in [
        (json!({}), DType::F32),
        (json!({ "dtype": null }), DType::F32),
        (json!({ "dtype": "float32" }), DType::F32),
        (json!({ "dtype": "bfloat16" }), DType::BF16),
        (json!({ "torch_dtype": "float16" }), DType::F16),
        (json!({ "dtype": "half" }), DType::F16),
        (json!({ "dtype": "bfloat16", "torch_dtype": "float16" }), DType::BF16),
        (json!({ "dtype": null, "torch_dtype": "float16" }), DType::F16),
    ] {
        assert_eq!(loaded(keys.clone(), LoadAs::Saved), Ok(expected), "{keys}");
        assert_eq!(loaded(keys.clone(), LoadAs::Float32), Ok(DType::F32), "{keys}");
    }
    for name in ["float64", "float8_e4m3fn", "auto", "torch.bfloat16", "int8"] {
        let said = loaded(json!({ "dtype": name }), LoadAs::Saved).unwrap_err();
        assert!(said.contains(&format!("config.json: dtype: vramlab does not support {name:?} weights")), "{said}");
    }
    let mut config = typed("gpt2", small("gpt2"));
    config["dtype"] = json!(16);
    assert!(refusal(&config, &Options::default()).contains("dtype: 16 is not a name"));
}

#[test]
fn unknown_keys_are_reported_and_irrelevant_ones_are_not() {
    let mut config = typed("llama", small("llama"));
    config["bos_token_id"] = json!(1);
    config["torch_dtype"] = json!("bfloat16");
    assert_eq!(read(&config, &Options::default()).warnings, Vec::<String>::new());
    config["clever_trick"] = json!(3);
    let warnings = read(&config, &Options::default()).warnings;
    assert!(matches!(&warnings[..], [only] if only.contains("clever_trick")), "{warnings:?}");
}

/// A complete step of Llama 3 70B.
#[test]
fn seventy_billion_parameters_are_predicted_at_once() {
    let config = json!({ "model_type": "llama", "hidden_size": 8192, "intermediate_size": 28672, "num_hidden_layers": 80,
        "num_attention_heads": 64, "num_key_value_heads": 8, "vocab_size": 128256, "max_position_embeddings": 8192 });
    let model = read(&config, &Options { sequence: Some(4096), ..Options::default() });
    let card = DeviceProfile { total_bytes: 4 << 40, ..DeviceProfile::default() };
    let start = Instant::now();
    let result =
        run(Arc::new(Meta::new(card.clone())), Profile::torch_2_11(90), &model, &settings(1, 1, Precision::Bf16));
    assert_eq!(result.parameters, 70_553_706_496);
    assert!(
        result.peak.allocated_bytes > 8 * result.parameters,
        "weights, gradients and two moments in two bytes each"
    );
    assert!(start.elapsed() < Duration::from_secs(5), "took {:?}", start.elapsed());
}

/// Two steps and two more from a file equal four steps: the same losses and the same state, bit for bit.
#[test]
fn every_kind_goes_on_from_a_file() {
    for model_type in MODEL_TYPES {
        let model = read(&typed(model_type, small(model_type)), &Options::default());
        let of = |steps, begin: Begin<'_>| {
            let device = Device::builder(Arc::new(Reference::default())).seed(7).build();
            let mut continuation = Continuation { begin, save: true, saved: None };
            let settings = settings(2, steps, Precision::Fp32);
            let on_step = &mut |_| ControlFlow::Continue(());
            let result =
                train_from(&model, &device, &settings, SOURCE, Keep::Output, &mut continuation, on_step).unwrap();
            (result.losses, continuation.saved.unwrap())
        };
        let ((all, end), (first, half)) = (of(4, Begin::Fresh), of(2, Begin::Fresh));
        let mut bytes = Vec::new();
        half.write(&mut bytes).unwrap();
        let (second, same_end) = of(2, Begin::Resume(&StateFile::read("half", &bytes).unwrap()));
        let bits = |losses: &[f64]| losses.iter().map(|loss| loss.to_bits()).collect::<Vec<_>>();
        assert_eq!(bits(&all), bits(&[first, second].concat()), "{model_type}");
        assert_eq!(end, same_end, "{model_type}");
    }
}

/// Some refusals depend on the settings: the type, the batch.
#[test]
fn settings_that_a_network_is_not_represented_with_are_refused_by_name() {
    let of = |model_type: &str, options: &Options, settings: &RunSettings| {
        let model = read(&typed(model_type, small(model_type)), options);
        let device = Device::builder(Arc::new(Meta::new(DeviceProfile::default()))).build();
        trainer(&model, &device, settings, SOURCE, Keep::Output).err().map(|error| error.to_string())
    };
    let full = settings(2, 1, Precision::Fp32);
    let narrow = of("t5", &Options::default(), &settings(2, 1, Precision::Fp16)).unwrap();
    assert!(narrow.contains("precision"), "{narrow}");
    for precision in [Precision::Bf16, Precision::AutocastFp16] {
        assert_eq!(of("t5", &Options::default(), &settings(2, 1, precision)), None);
    }
    let alone = settings(1, 1, Precision::Fp32);
    assert_eq!(of("vit", &Options::default(), &alone), None);
    let one = Options { sequence: Some(1), ..Options::default() };
    assert!(of("bert", &one, &full).unwrap().contains("sequence"));
    assert_eq!(of("bert", &one, &alone), None);
}

/// Images of a data set with ten classes: the loss falls, and the test examples are evaluated.
#[test]
fn pictures_are_trained_on_a_data_set() {
    let mut config = typed("vit", small("vit"));
    config["patch_size"] = json!(2);
    config["id2label"] = (0..10).map(|class| (class.to_string(), json!(class.to_string()))).collect();
    let model = read(&config, &Options::default());
    let device = Device::builder(Arc::new(Cpu::new().unwrap())).seed(7).build();
    let source = Source::Dataset { data: Arc::new(lab_training::data::digits().unwrap()), seed: 7 };
    let settings = settings(64, 200, Precision::Fp32);
    let on_step = &mut |_| ControlFlow::Continue(());
    let result = train(&model, &device, &settings, source, Keep::Output, on_step).unwrap();
    let (first, last) = (result.losses[0], result.losses[199]);
    assert!(last < 0.8 * first, "{first} to {last}");
    let accuracy = result.accuracy.unwrap();
    assert!(accuracy.of > 100 && accuracy.share() > 0.3, "{accuracy:?}");
}

/// A data set of images cannot give tokens.
#[test]
fn data_that_do_not_fit_are_refused() {
    let model = read(&typed("gpt2", small("gpt2")), &Options::default());
    let device = Device::builder(Arc::new(Meta::new(DeviceProfile::default()))).build();
    let source = Source::Dataset { data: Arc::new(lab_training::data::digits().unwrap()), seed: 7 };
    let on_step = &mut |_| ControlFlow::Continue(());
    let error = train(&model, &device, &settings(2, 1, Precision::Fp32), source, Keep::Output, on_step).unwrap_err();
    assert_eq!(error.to_string(), "data: digits holds values, the model wants tokens");
}

/// A script that deletes its result before the backward pass, under PyTorch 2.11 and transformers 5.23 on a stand-in for a card of capability 9.0:
/// label, allocated, its peak, reserved, allocations and frees.
const DELETED: &str = "
model 18020352 18020352 35651584 52
s0.zero_grad 18020352 18020352 35651584 52
s0.input 18036736 18036736 35651584 54
s0.forward 228287488 228296192 232783872 221
s0.loss 228287488 228296192 232783872 221
s0.del 207315968 228296192 232783872 222
s0.backward 104215040 249250816 287309824 646
s0.step 140747264 249250816 301989888 854
s1.zero_grad 122726912 249250816 301989888 906
s1.input 122726912 249250816 301989888 910
s1.forward 298251776 298260480 312475648 1075
s1.loss 298251264 298260480 312475648 1076
s1.del 277279744 298260480 312475648 1077
s1.backward 140747264 319214592 335544320 1500
s1.step 140747264 319214592 335544320 1604";

/// The schedule sets what is deleted, and when gradients are freed.
#[test]
fn schedules_decide_what_lives_until_when() {
    let config = json!({ "model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "n_layer": 4, "n_embd": 256,
        "n_head": 4, "vocab_size": 5000, "n_positions": 256 });
    let model = read(&config, &Options::default());
    let names: Vec<String> = "zero_grad input forward loss del backward step".split(' ').map(String::from).collect();
    let settings = RunSettings { schedule: Schedule::new(&names, "s").unwrap(), ..settings(4, 2, Precision::Fp32) };
    let card = DeviceProfile { total_bytes: 139 << 30, ..DeviceProfile::default() };
    let result = run(Arc::new(Meta::new(card.clone())), Profile::torch_2_11(90), &model, &settings);
    let row = |row: &Row| {
        let Row { label, allocated, max_allocated, reserved, n_alloc_plus_free, .. } = row;
        format!("{label} {allocated} {max_allocated} {reserved} {n_alloc_plus_free}")
    };
    let ours: Vec<String> = result.rows.iter().filter(|row| row.label != "end").map(row).collect();
    assert_eq!(ours.join("\n"), DELETED.trim());
    let cleared = Schedule::new(&["input", "forward", "clear"].map(String::from), "s").unwrap();
    let device = Device::builder(Arc::new(Meta::new(card))).build();
    let error = trainer(&model, &device, &RunSettings { schedule: cleared, ..settings }, SOURCE, Keep::Output).err();
    assert!(error.unwrap().to_string().contains("no lists that layers append to"));
}

/// Every configuration that is known by name is read without a warning, and has as many parameters as are published.
#[test]
fn known_configurations_have_the_published_parameters() {
    let device = Device::builder(Arc::new(Meta::new(DeviceProfile::default()))).build();
    let counts = |one: &'static Known| {
        let model = Configuration::Known(one).load(&Options::default()).unwrap();
        assert!(model.warnings.is_empty(), "{}: {:?}", one.name, model.warnings);
        trainer(&model, &device, &settings(1, 1, Precision::Bf16), SOURCE, Keep::Output).unwrap().parameter_count()
    };
    let all = known().iter().map(|one| (&one.name, counts(one), one.parameters));
    let wrong: Vec<_> = all.filter(|(_, found, said)| found != said).collect();
    assert!(wrong.is_empty(), "{wrong:?}");
}
