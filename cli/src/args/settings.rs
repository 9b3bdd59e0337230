//! Names of settings in other programs, with the flags here: the source of the guide's table and of the list in `--help`.

/// A setting under its names.
pub(crate) struct Setting {
    /// Name in a PyTorch script.
    pub(crate) pytorch: &'static str,
    /// Name in `TrainingArguments`, or in the scripts around them, and a JSON value that `--hf-args` turns into the flag.
    pub(crate) transformers: Option<(&'static str, &'static str)>,
    /// Names in Accelerate, DeepSpeed, FSDP.
    pub(crate) others: &'static str,
    pub(crate) flags: &'static str,
}

const fn row(
    pytorch: &'static str,
    transformers: Option<(&'static str, &'static str)>,
    others: &'static str,
    flags: &'static str,
) -> Setting {
    Setting { pytorch, transformers, others, flags }
}

/// Every setting that has a flag.
#[rustfmt::skip]
pub(crate) const SETTINGS: &[Setting] = &[
    row("DataLoader(batch_size=4)", Some(("per_device_train_batch_size", "4")), "DeepSpeed: train_micro_batch_size_per_gpu", "--batch 4"),
    row("8 backward passes before optimizer.step()", Some(("gradient_accumulation_steps", "8")), "Accelerate, DeepSpeed: gradient_accumulation_steps", "--accumulate 8"),
    row("DataLoader(…, drop_last=False)", None, "", "--batches 32,32,17"),
    row("tokens per example", Some(("max_length", "2048")), "", "--sequence 2048"),
    row("torch.autocast(\"cuda\", torch.bfloat16)", Some(("bf16", "true")), "Accelerate: mixed_precision: bf16", "--precision autocast-bf16"),
    row("torch.autocast(\"cuda\", torch.float16), GradScaler", Some(("fp16", "true")), "Accelerate: mixed_precision: fp16", "--precision autocast-fp16"),
    row("model.to(torch.bfloat16)", Some(("dtype", "\"bfloat16\"")), "", "--precision bf16"),
    row("torch.optim.SGD(…)", Some(("optim", "\"sgd\"")), "", "--optimizer sgd"),
    row("bnb.optim.PagedAdamW8bit(…)", Some(("optim", "\"paged_adamw_8bit\"")), "", "--optimizer paged-adamw8bit"),
    row("torch.optim.AdamW(…, fused=True); foreach=False", Some(("optim", "\"adamw_torch_fused\"")), "", "--optimizer-impl fused"),
    row("p.register_post_accumulate_grad_hook(step)", None, "torchtune: optimizer_in_bwd", "--step-in-backward"),
    row("lr=2e-5", Some(("learning_rate", "2e-5")), "", "--lr 0.00002"),
    row("weight_decay=0.01", Some(("weight_decay", "0.01")), "", "--weight-decay 0.01"),
    row("parameter.requires_grad_(False)", None, "", "--freeze '*,!head'"),
    row("torch.nn.utils.clip_grad_norm_(…, 0.5)", Some(("max_grad_norm", "0.5")), "DeepSpeed: gradient_clipping", "--clip-grad-norm 0.5"),
    row("optimizer.zero_grad(set_to_none=False)", None, "", "--zero-grad zero"),
    row("model.eval(), torch.no_grad() every 100 steps", None, "", "--eval-every 100"),
    row("torch.optim.swa_utils.AveragedModel(model, …)", None, "", "--ema model"),
    row("checkpoint(block, x, use_reentrant=False)", Some(("gradient_checkpointing", "true")), "FSDP: fsdp_activation_checkpointing", "--checkpoint blocks"),
    row("create_selective_checkpoint_contexts([aten.mm, …])", None, "torchtitan: selective_ac_option: op", "--checkpoint blocks --checkpoint-save mm:2,attention"),
    row("model(…, logits_to_keep=64)", None, "", "--logits-to-keep 64"),
    row("model(…, position_ids=position_ids)", None, "", "--packing 4"),
    row("torch.autograd.graph.save_on_cpu(pin_memory=True)", None, "", "--save-on-cpu=pinned"),
    row("apply_liger_kernel_to_llama()", None, "", "--liger"),
    row("attention as matmul, softmax, matmul", Some(("attn_implementation", "\"eager\"")), "", "--attention eager"),
    row("scaled_dot_product_attention", Some(("attn_implementation", "\"sdpa\"")), "", "--attention sdpa"),
    row("transformers.Trainer", Some(("output_dir", "\"out\"")), "", "--loop trainer"),
    row("DistributedDataParallel on 8 cards", None, "Accelerate: num_processes: 8", "--data-parallel 8"),
    row("", None, "DeepSpeed: zero_optimization.stage: 3, nearest to FSDP: FULL_SHARD (2: SHARD_GRAD_OP)", "--zero 3"),
    row("PYTORCH_ALLOC_CONF=expandable_segments:True", None, "", "--alloc-conf expandable_segments:True"),
    row("torch.cuda.set_per_process_memory_fraction(0.5)", None, "", "--memory-fraction 0.5"),
];

/// Returns the end of the long help: flag and other names, two lines a setting.
pub(crate) fn help() -> String {
    let mut text = String::from("Your settings as flags (--hf-args FILE takes those of transformers as they are):\n");
    for Setting { pytorch, transformers, others, flags } in SETTINGS {
        let named = transformers.map(|(name, value)| format!("{name}={value}"));
        let names = [Some(pytorch.to_string()), named, Some(others.to_string())];
        let names: Vec<String> = names.into_iter().flatten().filter(|name| !name.is_empty()).collect();
        text += &format!("  {flags}\n      {}\n", names.join(" | "));
    }
    text
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::args::cli::Cli;

    /// Returns the table of `docs/guide.md`.
    fn markdown() -> String {
        let code = |text: &str| if text.is_empty() { String::new() } else { format!("`{text}`") };
        let mut table =
            String::from("| PyTorch | transformers | Accelerate, DeepSpeed, FSDP | here |\n|---|---|---|---|\n");
        for Setting { pytorch, transformers, others, flags } in SETTINGS {
            let named = transformers.map(|(name, value)| code(&format!("{name}={value}"))).unwrap_or_default();
            table += &format!("| {} | {named} | {others} | {} |\n", code(pytorch), code(flags));
        }
        table
    }

    #[test]
    fn every_flag_is_one_of_predict() {
        for flags in SETTINGS.iter().map(|setting| setting.flags) {
            let words = ["vramlab", "predict"].into_iter().chain(flags.split(' '));
            let parsed = Cli::command().try_get_matches_from(words);
            // A flag that needs another one is known all the same.
            let unknown = parsed.err().filter(|error| error.kind() != clap::error::ErrorKind::MissingRequiredArgument);
            assert!(unknown.is_none(), "{flags}: {unknown:?}");
        }
    }

    #[test]
    fn arguments_of_transformers_become_the_flag_of_their_row() {
        let folder = tempfile::tempdir().unwrap();
        let (file, config) = (folder.path().join("a.json"), folder.path().join("config.json"));
        std::fs::write(&config, "{}").unwrap();
        let around =
            lab::hf_args::Around { config: Some(lab::huggingface::Configuration::File(&config)), ..Default::default() };
        for (setting, (name, value)) in SETTINGS.iter().filter_map(|setting| Some((setting, setting.transformers?))) {
            std::fs::write(&file, format!("{{\"{name}\": {value}}}")).unwrap();
            let found = lab::hf_args::read(&file, &around).unwrap();
            let (flag, said) = setting.flags.split_once(' ').unwrap();
            let field = &found.fields[flag.trim_start_matches("--")];
            let field = field.as_str().map_or_else(|| field.to_string(), String::from);
            let same = field == said || field.parse::<f64>().ok().is_some_and(|number| said.parse() == Ok(number));
            assert!(same && found.refusals.is_empty(), "{name}: {field}, {said}");
        }
    }

    #[test]
    fn the_guide_has_the_table() {
        let guide = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/guide.md");
        let guide = std::fs::read_to_string(guide).unwrap();
        let table = markdown();
        assert!(
            guide.contains(&table),
            "docs/guide.md has another table than cli/src/args/settings.rs, which is:\n{table}"
        );
    }
}
