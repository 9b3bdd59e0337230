//! The plan as a script: PyTorch's own loop, or transformers' `Trainer`, around the network, on random tokens.

use lab_imports::huggingface::{Attention, End, Keep};
use lab_training::{CheckpointSave, SavedOn};

use super::plan::{HandedPlan, number};

/// Fields of a run that a script says beside those of adapters and quantized weights, by their names.
pub(super) const SAID: &[&str] = &[
    "model",
    "model-file",
    "sequence",
    "batch",
    "accumulate",
    "steps",
    "optimizer",
    "optimizer-impl",
    "lr",
    "weight-decay",
    "precision",
    "checkpoint",
    "checkpoint-save",
    "save-on-cpu",
    "attention",
    "loss",
    "loop",
    "keep",
    "zero-grad",
    "clip-grad-norm",
    "seed",
    "data",
    "alloc-conf",
    "transformers",
    "gpu",
    "memory-limit",
    "like",
];

/// Writes the script.
pub(super) fn text(plan: &HandedPlan<'_>, heading: &str) -> String {
    let body = if plan.spec.model.by_trainer() { by_trainer(plan) } else { by_hand(plan) };
    format!("{}{}{}{body}", beginning(plan, heading), network(plan), prepared(plan))
}

/// What the script says of itself, the allocator's variable, what it imports, sizes.
fn beginning(plan: &HandedPlan<'_>, heading: &str) -> String {
    let more = if plan.hub().is_some() { " The first argument is its name on the hub, or its folder." } else { "" };
    let mut text = format!(
        "\"\"\"{heading}\n\n    python train.py {}\n\nBeside it lies the network's config.json.{more}\nRandom tokens stand for your texts: `examples` makes them.\"\"\"\n",
        plan.hub().unwrap_or("FOLDER-WITH-ITS-WEIGHTS"),
    );
    text.push_str(if plan.run.checkpoint_save.is_some() { "import functools\n" } else { "" });
    text.push_str("import os\n");
    if let Some(settings) = plan.allocator() {
        text.push_str(&format!(
            "\nos.environ[\"PYTORCH_CUDA_ALLOC_CONF\"] = {settings:?}  # before torch is imported\n"
        ));
    }
    let beside = plan.lora().is_some() || plan.run.quantized.is_some() || plan.spec.model.by_trainer();
    text.push_str(if beside { "import json\n" } else { "" });
    text.push_str("import pathlib\nimport sys\n\n");
    text.push_str(if plan.optimizer_call().0.starts_with("bitsandbytes.") { "import bitsandbytes\n" } else { "" });
    text.push_str(if plan.lora().is_some() { "import peft\n" } else { "" });
    text.push_str("import torch\nimport transformers\n");
    if plan.chosen_blocks().is_some() {
        text.push_str("from transformers.modeling_layers import GradientCheckpointingLayer\n");
    }
    let (end, tokens) = (plan.model.options().end, plan.tokens().unwrap_or_default());
    match end {
        End::Own => {}
        End::Liger | End::Kernels => {
            text.push_str("from liger_kernel.transformers.model.loss_utils import LigerForCausalLMLoss\n");
        }
        End::Checkpointed | End::Chunked(_) => {
            text.push_str("from torch.nn import functional as F\nfrom torch.utils.checkpoint import checkpoint\n");
        }
    }
    if plan.run.checkpoint_save.is_some() {
        text.push_str("from torch.utils.checkpoint import create_selective_checkpoint_contexts\n");
    }
    text.push_str(&format!(
        "\nHERE = pathlib.Path(__file__).parent\nNETWORK = sys.argv[1] if len(sys.argv) > 1 else str(HERE)\nMICRO_BATCH, ACCUMULATE, TOKENS, STEPS = {}, {}, {tokens}, {}\n\n",
        plan.micro_batch(),
        plan.run.accumulate,
        plan.spec.training.steps.unwrap_or(3),
    ));
    text
}

/// The network, with adapters and weights of few bits.
fn network(plan: &HandedPlan<'_>) -> String {
    let mut arguments = format!("dtype=torch.{}", plan.weights());
    if plan.spec.model.attention.is_some() {
        let name = if plan.model.options().attention == Attention::Eager { "eager" } else { "sdpa" };
        arguments.push_str(&format!(", attn_implementation=\"{name}\""));
    }
    let mut text = String::new();
    let few_bits = plan.run.quantized.is_some();
    if few_bits {
        text.push_str(
            "few_bits = transformers.BitsAndBytesConfig(**json.loads((HERE / \"bitsandbytes.json\").read_text()))\n",
        );
        arguments.push_str(", quantization_config=few_bits, device_map={\"\": 0}");
    }
    text.push_str(&format!("model = transformers.AutoModelForCausalLM.from_pretrained(NETWORK, {arguments})\n"));
    if plan.lora().is_some() {
        let checkpoints = plan.checkpoints();
        if few_bits {
            let on = if checkpoints { "True" } else { "False" };
            text.push_str(&format!(
                "model = peft.prepare_model_for_kbit_training(model, use_gradient_checkpointing={on}, gradient_checkpointing_kwargs={{\"use_reentrant\": False}})\n"
            ));
        } else if checkpoints {
            text.push_str("model.enable_input_require_grads()\n");
        }
        text.push_str(
            "model = peft.get_peft_model(model, peft.LoraConfig(**json.loads((HERE / \"peft.json\").read_text())))\n",
        );
    }
    text
}

/// The network on the card, with what is computed again.
fn prepared(plan: &HandedPlan<'_>) -> String {
    if plan.spec.model.by_trainer() {
        return String::new();
    }
    let mut text = String::new();
    if plan.run.quantized.is_none() {
        text.push_str("model.to(\"cuda\")\n");
    }
    text.push_str("model.train()\n");
    if plan.checkpoints() {
        let contexts = plan.run.checkpoint_save.as_ref().map(contexts);
        text.push_str(contexts.as_deref().unwrap_or_default());
        let more = if contexts.is_some() { ", \"context_fn\": contexts" } else { "" };
        text.push_str(&format!(
            "model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={{\"use_reentrant\": False{more}}})\n"
        ));
    }
    text.push_str(&chosen_blocks(plan));
    text
}

/// What keeps the results of some operators in blocks that are computed again. `HandOver` leaves out the script of every second product.
fn contexts(save: &CheckpointSave) -> String {
    let (operators, _) = save.operators();
    let kept: Vec<String> = operators.iter().map(|name| format!("torch.ops.aten.{name}.default")).collect();
    format!("kept = [{}]\ncontexts = functools.partial(create_selective_checkpoint_contexts, kept)\n", kept.join(", "))
}

/// Code that leaves checkpointing to the chosen blocks.
fn chosen_blocks(plan: &HandedPlan<'_>) -> String {
    let Some(chosen) = plan.chosen_blocks() else { return String::new() };
    format!(
        "model.config.use_cache = False
layers = [module for module in model.modules() if isinstance(module, GradientCheckpointingLayer)]
for number, layer in enumerate(layers):
    layer.gradient_checkpointing = {chosen}
"
    )
}

/// transformers' `Trainer`.
fn by_trainer(_plan: &HandedPlan<'_>) -> String {
    "arguments = transformers.TrainingArguments(**json.loads((HERE / \"training_args.json\").read_text()), max_steps=STEPS, report_to=[])


def examples(count):
    ids = torch.randint(model.config.vocab_size, (count, TOKENS))
    return [{\"input_ids\": one, \"labels\": one.clone()} for one in ids]


trainer = transformers.Trainer(model=model, args=arguments, train_dataset=examples(STEPS * ACCUMULATE * MICRO_BATCH))
trainer.train()
"
    .into()
}

/// A plain loop.
fn by_hand(plan: &HandedPlan<'_>) -> String {
    let (class, arguments) = plan.optimizer_call();
    let mut text = String::new();
    text.push_str(&format!("optimizer = {class}(model.parameters(), {arguments})\n"));
    let scales = plan.run.precision.scales_loss();
    if scales {
        text.push_str("scaler = torch.amp.GradScaler(\"cuda\")\n");
    }
    text.push_str(
        "

def examples():
    ids = torch.randint(model.config.vocab_size, (MICRO_BATCH, TOKENS))
    return {\"input_ids\": ids.to(\"cuda\"), \"labels\": ids.clone().to(\"cuda\")}


",
    );
    text.push_str(&loss(plan.model.options().end));
    text.push_str("for step in range(STEPS):\n    for micro in range(ACCUMULATE):\n        batch = examples()\n");
    let none = if plan.run.set_to_none { "" } else { "set_to_none=False" };
    text.push_str(&format!("        if micro == 0:\n            optimizer.zero_grad({none})\n"));
    let indent = match plan.autocast() {
        Some(dtype) => {
            text.push_str(&format!("        with torch.autocast(\"cuda\", torch.{dtype}):\n"));
            "            "
        }
        None => "        ",
    };
    let own = plan.model.options().end == End::Own;
    let keeps = own && plan.spec.model.keep.unwrap_or_default() == Keep::Output;
    let lines: &[&str] = match (own, keeps) {
        (true, true) => &["out = model(**batch)", "loss = out.loss"],
        (true, false) => &["loss = model(**batch).loss"],
        (false, _) => &["loss = loss_of(model, batch)"],
    };
    let indent = match plan.run.save_on_cpu {
        Some(kind) => {
            let pinned = if kind == SavedOn::Pinned { "True" } else { "False" };
            text.push_str(&format!("{indent}with torch.autograd.graph.save_on_cpu(pin_memory={pinned}):\n"));
            format!("{indent}    ")
        }
        None => indent.to_string(),
    };
    lines.iter().for_each(|line| text.push_str(&format!("{indent}{line}\n")));
    if plan.run.accumulate > 1 {
        text.push_str("        loss = loss / ACCUMULATE\n");
    }
    text.push_str(if scales { "        scaler.scale(loss).backward()\n" } else { "        loss.backward()\n" });
    if let Some(norm) = plan.run.clip_grad_norm {
        if scales {
            text.push_str("    scaler.unscale_(optimizer)\n");
        }
        text.push_str(&format!("    torch.nn.utils.clip_grad_norm_(model.parameters(), {})\n", number(norm)));
    }
    text.push_str(if scales { "    scaler.step(optimizer)\n    scaler.update()\n" } else { "    optimizer.step()\n" });
    text
}

/// The loss in place of the network's own.
fn loss(end: End) -> String {
    let hidden = "def hidden_states(model, batch):
    inner = model.get_base_model() if hasattr(model, \"get_base_model\") else model
    return inner.base_model(input_ids=batch[\"input_ids\"]).last_hidden_state


";
    let parts = match end {
        // `HandOver` leaves the script with all of Liger's kernels out.
        End::Own | End::Kernels => return String::new(),
        End::Liger => {
            return format!(
                "{hidden}def loss_of(model, batch):
    return LigerForCausalLMLoss(
        hidden_states=hidden_states(model, batch),
        lm_head_weight=model.get_output_embeddings().weight,
        labels=batch[\"labels\"],
        hidden_size=model.config.get_text_config().hidden_size,
    )


"
            );
        }
        End::Checkpointed => {
            return format!(
                "{hidden}def loss_of(model, batch):
    def head_and_loss(hidden, labels):
        return model.loss_function(model.get_output_embeddings()(hidden), labels, vocab_size=model.config.vocab_size)

    return checkpoint(head_and_loss, hidden_states(model, batch), batch[\"labels\"], use_reentrant=False)


"
            );
        }
        End::Chunked(parts) => parts,
    };
    format!(
        "{hidden}def loss_of(model, batch):
    \"\"\"The mean over all labels, of which none is padding.\"\"\"
    def head_and_loss(hidden, labels):
        return F.cross_entropy(model.get_output_embeddings()(hidden).float(), labels, reduction=\"sum\")

    hidden = hidden_states(model, batch)
    labels = F.pad(batch[\"labels\"], (0, 1), value=-100)[:, 1:].reshape(-1)
    hidden, total = hidden.view(-1, hidden.shape[-1]), None
    for part, targets in zip(hidden.chunk({parts}), labels.chunk({parts})):
        loss = checkpoint(head_and_loss, part, targets, use_reentrant=False)
        total = loss if total is None else total + loss
    return total / (len(batch[\"labels\"]) * (batch[\"labels\"].shape[1] - 1))


"
    )
}
