"""Trains one network as the documentation of its class says, without the driver of `vramlab predict`, and prints its peaks.

    vramlab rehearse --gpu h200 python truth.py NAME     NAME: one of TRAININGS; its configuration is that of `published.py`
    python truth.py --compare PROGRAM COUNT.tsv [NAME...]     rehearses each, beside the rows of `count.py`
"""
import os
import subprocess
import sys

BATCH, STEPS = 2, 3


def trainings(torch):
    """The class of each network, and what its forward pass is given, on the host."""
    whole = lambda most, *sizes: torch.randint(0, most, sizes)
    text = lambda most, length=512, labels=None: lambda: dict(input_ids=whole(most, BATCH, length), labels=whole(labels or most, BATCH, length))
    pictures = lambda side, classes, name="pixel_values": lambda: {name: torch.rand(BATCH, 3, side, side), "labels": whole(classes, BATCH)}
    sounds = lambda: dict(input_values=torch.rand(BATCH, 160000), labels=torch.randint(1, 32, (BATCH, 100)))
    return {
        "electra-base": ("ElectraForPreTraining", text(30522, labels=2)),
        "mpnet-base": ("MPNetForMaskedLM", text(30527)),
        "esm2-650m": ("EsmForMaskedLM", text(33)),
        "deberta-v3-base": ("DebertaV2ForMaskedLM", text(128100)),
        "xlm-roberta-base": ("XLMRobertaForMaskedLM", text(250002)),
        "modernbert-base": ("ModernBertForMaskedLM", text(50368)),
        "bart-base": ("BartForConditionalGeneration", text(50265)),
        "nllb-200-600m": ("M2M100ForConditionalGeneration", text(256206)),
        "mamba-130m": ("MambaForCausalLM", text(50280, 1024)),
        "clip-vit-b32": ("CLIPModel", lambda: dict(input_ids=whole(49408, BATCH, 77), pixel_values=torch.rand(BATCH, 3, 224, 224), return_loss=True)),
        "siglip-base": ("SiglipModel", lambda: dict(input_ids=whole(32000, BATCH, 64), pixel_values=torch.rand(BATCH, 3, 224, 224), return_loss=True)),
        "convnext-tiny": ("ConvNextForImageClassification", pictures(224, 1000)),
        "swin-tiny": ("SwinForImageClassification", pictures(224, 1000)),
        "dinov2-base": ("Dinov2ForImageClassification", pictures(518, 2)),
        "dinov3-vits16": ("DINOv3ViTForImageClassification", pictures(224, 2)),
        "segformer-b0": ("SegformerForSemanticSegmentation", lambda: dict(pixel_values=torch.rand(BATCH, 3, 512, 512), labels=whole(150, BATCH, 512, 512))),
        "whisper-small": ("WhisperForConditionalGeneration", lambda: dict(input_features=torch.rand(BATCH, 80, 3000), labels=whole(51865, BATCH, 448))),
        "hubert-base": ("HubertForCTC", sounds),
        "timesfm-2.0-500m": ("TimesFmModelForPrediction", lambda: dict(past_values=torch.rand(BATCH, 2048), freq=torch.zeros(BATCH, dtype=torch.long),
                                                                      future_values=torch.rand(BATCH, 128))),
    }


def train(name):
    import torch
    import transformers

    import published

    data = published.MODELS[name]
    kind, inputs = trainings(torch)[name]
    config = transformers.AutoConfig.for_model(**data)
    model = getattr(transformers, kind)(config).to("cuda").train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    for _ in range(STEPS):
        batch = {key: value.to("cuda") if isinstance(value, torch.Tensor) else value for key, value in inputs().items()}
        optimizer.zero_grad()
        outputs = model(**batch)
        outputs.loss.backward()
        optimizer.step()
    print("PEAK", torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved())


def compare(program, count, *names):
    import torch

    for name in names or trainings(torch):
        words = [program, "rehearse", "--gpu", "h200", sys.executable, os.path.abspath(__file__), name]
        ran = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        peak = next((line.split()[1:3] for line in ran.stdout.splitlines() if line.startswith("PEAK")), None)
        if peak is None:
            print("%s: no truth: %s" % (name, ran.stdout.strip().splitlines()[-1:]), flush=True)
            continue
        with open(count) as file:
            rows = {row[0]: row for row in (line.rstrip("\n").split("\t") for line in file)}
        if name not in rows:
            print("%s: not in %s yet: %s" % (name, count, " ".join(peak)), flush=True)
            continue
        found = rows[name][3:5]
        away = ["equal" if one == other else "%+.4f %%" % (100 * (int(one) - int(other)) / int(other)) for one, other in zip(found, peak)]
        print("%s\t%s\t%s\t%s" % (name, rows[name][1], "\t".join(peak), "\t".join(away)), flush=True)


if __name__ == "__main__":
    sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
    compare(*sys.argv[2:]) if sys.argv[1] == "--compare" else train(sys.argv[1])
