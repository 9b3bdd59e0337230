#!/usr/bin/env python3
"""Records three training steps of small networks of transformers, whichever release is on PYTHONPATH, with the real PyTorch.

    vramlab rehearse --quiet --gpu h200 --cudnn none --steps 1000 -- python scripts/huggingface/record.py CASES.json > RECORDED
    python scripts/huggingface/record.py --pack FAMILY RECORDED FILE.json.gz      the format of lab/imports/tests/golden/models

CASES.json is a list of {name, class, config, batch, seq, options}; the options are those of a recording, and absent ones have their usual
value. Each case runs in a process of its own, and its rows are one line of the output."""
import contextlib
import gzip
import json
import os
import sys
import traceback

COLUMNS = ["label", "allocated", "max_allocated", "reserved", "max_reserved", "phase_peak_allocated", "requested", "active",
           "inactive_split", "segments", "n_alloc_plus_free"]
MARK = "RECORDED "
USUAL = {"kind": "transformers", "loop": "plain", "precision": "fp32", "attn_implementation": "sdpa", "optimizer": "torch.optim.AdamW(lr=1e-4)",
         "gradient_checkpointing": False, "grad_accumulation": 1, "use_cache": True, "attention_mask": "none", "keep": "out", "init": "cpu", "env": {}}


class Rows:
    """Takes a row per call."""

    def __init__(self):
        self.taken, self.highest, self.most_reserved, self.before = [], 0, 0, 0

    def changes(self):
        import torch
        stats = torch._C._cuda_memoryStats(0)
        return stats["allocation"]["all"]["allocated"] + stats["allocation"]["all"]["freed"]

    def __call__(self, label):
        import torch
        stats = torch._C._cuda_memoryStats(0)
        peak, reserved = stats["allocated_bytes"]["all"]["peak"], stats["reserved_bytes"]["all"]["peak"]
        self.highest, self.most_reserved = max(self.highest, peak), max(self.most_reserved, reserved)
        self.taken.append([label, torch.cuda.memory_allocated(), self.highest, torch.cuda.memory_reserved(), self.most_reserved, peak,
                           stats["requested_bytes"]["all"]["current"], stats["active_bytes"]["all"]["current"],
                           stats["inactive_split_bytes"]["all"]["current"], stats["segment"]["all"]["current"], self.changes()])
        torch.cuda.reset_peak_memory_stats()


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
    with place:
        return kind._from_config(config, **{name: types.get(options["precision"], torch.float32)})


def kind_of_pictures(case):
    return case["class"].endswith("ForImageClassification")


def batch_of(case, options, model):
    """What a step is given, made on the card."""
    import torch
    size, length = case["batch"], case["seq"]
    if kind_of_pictures(case):
        side, channels = model.config.image_size, model.config.num_channels
        pictures = torch.zeros(size, channels, side, side, device="cuda", dtype=model.dtype)
        return {"pixel_values": pictures, "labels": torch.zeros(size, dtype=torch.long, device="cuda")}
    ids = torch.randint(3, model.config.vocab_size, (size, length), device="cuda")
    given = {"input_ids": ids}
    kind = case["class"]
    if kind.endswith(("LMHeadModel", "ForCausalLM", "ForMaskedLM", "ForConditionalGeneration")):
        given["labels"] = ids.clone()
    elif kind.endswith("ForSequenceClassification"):
        given["labels"] = torch.zeros(size, dtype=torch.long, device="cuda")
    elif kind.endswith("ForTokenClassification"):
        given["labels"] = torch.zeros(size, length, dtype=torch.long, device="cuda")
    elif kind.endswith("ForQuestionAnswering"):
        given["start_positions"] = torch.zeros(size, dtype=torch.long, device="cuda")
        given["end_positions"] = torch.zeros(size, dtype=torch.long, device="cuda")
    if options["attention_mask"] in ("full", "padded"):
        mask = torch.ones(size, length, dtype=torch.long)
        if options["attention_mask"] == "padded":
            mask[:, length // 2 + 1:] = 0
        given["attention_mask"] = mask.to("cuda")
    return given


def record(case):
    """The recording of a case."""
    import torch
    import transformers
    torch.backends.cudnn.enabled = False
    torch.backends.cuda.enable_cudnn_sdp(False)
    torch.manual_seed(0)
    options = {**USUAL, **case.get("options", {})}
    rows = Rows()
    model = made(case, options).to("cuda").train()
    if options["gradient_checkpointing"]:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
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
    versions = {"torch": torch.__version__, "transformers": transformers.__version__}
    parameters = sum(p.numel() for p in model.parameters())
    config = {**case["config"], "transformers_version": transformers.__version__}
    return {"name": case["name"], "class": case["class"], "batch": case["batch"], "seq": case["seq"], "options": options, "config": config,
            "versions": versions, "params": parameters, "step_columns": COLUMNS, "steps": rows.taken}


def in_a_child(case):
    """Records a case in a process of its own, and prints it."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            print(MARK + json.dumps(record(case), separators=(",", ":")), flush=True)
            status = 0
        except BaseException:
            print(case["name"], file=sys.stderr)
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(status)
    return os.waitpid(child, 0)[1] == 0


def pack(family, recorded, packed):
    """Makes a file of recordings of the printed lines."""
    with open(recorded) as lines:
        runs = [json.loads(line.split(MARK, 1)[1]) for line in lines if MARK in line]
    runs = [{"name": run.pop("name"), "family": family, **run} for run in runs]
    text = json.dumps({"format": "oracle-models-1", "family": family, "runs": runs}, separators=(",", ":"))
    with open(packed, "wb") as file:
        file.write(gzip.compress(text.encode(), mtime=0))
    print(len(runs), "runs")


def main():
    if sys.argv[1] == "--pack":
        return pack(*sys.argv[2:])
    import torch
    import transformers
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    with open(sys.argv[1]) as file:
        cases = json.load(file)
    for case in cases:
        getattr(transformers, case["class"])
        in_a_child(case)
    return None


if __name__ == "__main__":
    main()
