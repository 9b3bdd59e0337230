"""The format `oracle-models-1`: three training steps of a network of transformers, whichever release is installed.

A case is {name, class, config, batch, seq, options}. The options are those of a recording, and absent ones have their usual value."""
import contextlib

import few_bits
from script_format import COLUMNS, Rows

USUAL = {"kind": "transformers", "loop": "plain", "precision": "fp32", "attn_implementation": "sdpa", "optimizer": "torch.optim.AdamW(lr=1e-4)",
         "gradient_checkpointing": False, "grad_accumulation": 1, "use_cache": True, "attention_mask": "none", "keep": "out", "init": "cpu", "env": {}}

# The class of a case that names none, by its configuration.
CLASSES = {"gpt2": "GPT2LMHeadModel", "opt": "OPTForCausalLM", "gpt_neox": "GPTNeoXForCausalLM", "bert": "BertForMaskedLM",
           "t5": "T5ForConditionalGeneration", "llama": "LlamaForCausalLM", "qwen2": "Qwen2ForCausalLM"}


def checked(case):
    """A case with its class and all its options.

    Raises an error where another loop would be needed: that of `Trainer`, of several batches a step, of files with saved types."""
    options = {**USUAL, **case.get("options", {})}
    for name, known in {"loop": ("plain", "trainer"), "grad_accumulation": (1,), "precision": ("fp32", "bf16", "fp16", "autocast", "bf16_autocast")}.items():
        if options[name] not in known:
            raise ValueError(f"{case['name']}: {name} {options[name]!r} is not recorded here")
    kind = case.get("class") or CLASSES.get(case["config"]["model_type"])
    if kind is None:
        raise ValueError(f"{case['name']}: name a class")
    return {**case, "class": kind}, options


def made(case, options):
    """The network of a case, on the card, in its type."""
    import torch
    import transformers
    kind = getattr(transformers, case["class"])
    settings = {key: value for key, value in case["config"].items() if key not in ("architectures", "transformers_version")}
    config = transformers.AutoConfig.for_model(**settings)
    config._attn_implementation = options["attn_implementation"]
    config.use_cache = options["use_cache"]
    types = {"bf16": torch.bfloat16, "fp16": torch.float16, "bf16_autocast": torch.bfloat16}
    name = "torch_dtype" if transformers.__version__.startswith("4.") else "dtype"
    place = torch.device("cuda") if options["init"] == "cuda" else contextlib.nullcontext()
    # Early releases choose again unless they are told here.
    told = {"attn_implementation": options["attn_implementation"]} if transformers.__version__ < "4.48" else {}
    with place:
        return kind._from_config(config, **told, **{name: types.get(options["precision"], torch.float32)})


def batch_of(case, options, model):
    """What a step is given, made on the card."""
    import torch
    size, length = case["batch"], case["seq"]
    kind = case["class"]
    if kind.endswith("ForImageClassification"):
        side, channels = model.config.image_size, model.config.num_channels
        pictures = torch.zeros(size, channels, side, side, device="cuda", dtype=model.dtype)
        return {"pixel_values": pictures, "labels": torch.zeros(size, dtype=torch.long, device="cuda")}
    ids = torch.randint(3, model.config.vocab_size, (size, length), device="cuda")
    given = {"input_ids": ids}
    if kind.endswith(("LMHeadModel", "ForCausalLM", "ForMaskedLM", "ForConditionalGeneration")):
        given["labels"] = ids.clone()
    elif kind.endswith("ForSequenceClassification"):
        given["labels"] = torch.zeros(size, dtype=torch.long, device="cuda")
    elif kind.endswith("ForTokenClassification"):
        given["labels"] = torch.zeros(size, length, dtype=torch.long, device="cuda")
    elif kind.endswith("ForQuestionAnswering"):
        given["start_positions"] = torch.zeros(size, dtype=torch.long, device="cuda")
        given["end_positions"] = torch.zeros(size, dtype=torch.long, device="cuda")
    if options["attention_mask"] in (True, "full", "padded"):
        mask = torch.ones(size, length, dtype=torch.long)
        if options["attention_mask"] == "padded":
            mask[:, length // 2 + 1:] = 0
        given["attention_mask"] = mask.to("cuda")
    return given


def record(case):
    """The recording of a case."""
    import torch
    torch.backends.cudnn.enabled = False
    torch.backends.cuda.enable_cudnn_sdp(False)
    torch.manual_seed(0)
    case, options = checked(case)
    rows = Rows()
    model = few_bits.put_on_card(made(case, options), options).train()
    if options["gradient_checkpointing"] and options["loop"] == "plain":
        reentrant = options["gradient_checkpointing"] == "reentrant"
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": reentrant})
    if options["loop"] == "trainer":
        trained_by_library(rows, model, case, options)
        return told(case, options, model, rows)
    name, _, arguments = options["optimizer"].partition("(")
    optimizer = eval(f"{name}(model.parameters(), {arguments}", {"torch": torch, "model": model})
    lower = torch.autocast("cuda", dtype=torch.bfloat16) if "autocast" in options["precision"] else contextlib.nullcontext()
    pooled = case["class"].endswith("Model") and not case["class"].endswith("LMHeadModel")
    rows("model")
    for step in range(3):
        b = batch_of(case, options, model)
        rows(f"s{step}.input")
        optimizer.zero_grad()
        rows(f"s{step}.zero_grad")
        with lower:
            if options["keep"] == "loss":
                loss = model(**b).loss
            else:
                out = model(**b)
                loss = out.last_hidden_state.mean() if pooled else out.loss
        rows(f"s{step}.forward")
        loss.backward()
        rows(f"s{step}.backward")
        optimizer.step()
        rows(f"s{step}.step")
    rows("end")
    return told(case, options, model, rows)


def trained_by_library(rows, model, case, options):
    """Three steps of the library's own `Trainer`: its callbacks and two methods take the rows."""
    import tempfile

    import torch
    import transformers

    step = 0

    class Recorded(transformers.Trainer):
        def compute_loss(self, *given, **named):
            loss = super().compute_loss(*given, **named)
            rows(f"s{step}.forward")
            return loss

        def training_step(self, *given, **named):
            loss = super().training_step(*given, **named)
            rows(f"s{step}.backward")
            return loss

    class Taken(transformers.TrainerCallback):
        def on_train_begin(self, *given, **named):
            rows("model")

        def on_step_begin(self, *given, **named):
            rows(f"s{step}.input")

        def on_pre_optimizer_step(self, *given, **named):
            rows(f"s{step}.clip")

        def on_optimizer_step(self, *given, **named):
            rows(f"s{step}.step")

        def on_step_end(self, *given, **named):
            nonlocal step
            rows(f"s{step}.zero_grad")
            step += 1

    with tempfile.TemporaryDirectory() as folder:
        arguments = transformers.TrainingArguments(
            folder, max_steps=3, per_device_train_batch_size=case["batch"], logging_strategy="no", save_strategy="no", report_to=[], disable_tqdm=True,
            bf16="autocast" in options["precision"], gradient_checkpointing=bool(options["gradient_checkpointing"]), dataloader_pin_memory=False)
        ids = torch.randint(3, case["config"]["vocab_size"], (64, case["seq"]))
        data = [{"input_ids": one, "labels": one.clone()} for one in ids]
        trainer = Recorded(model, arguments, train_dataset=data, data_collator=transformers.default_data_collator, callbacks=[Taken()])
        trainer.train()


def told(case, options, model, rows):
    """The recording of a case."""
    import torch
    import transformers

    versions = {"torch": torch.__version__, "transformers": transformers.__version__}
    parameters = sum(p.numel() for p in model.parameters())
    config = {**case["config"], "transformers_version": transformers.__version__}
    return {"name": case["name"], "class": case["class"], "batch": case["batch"], "seq": case["seq"], "options": options, "config": config,
            "versions": versions, "params": parameters, "step_columns": COLUMNS, "steps": rows.taken}
