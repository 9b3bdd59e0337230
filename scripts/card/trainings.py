#!/usr/bin/env python3
"""Trains each of a list of scripts on the card of this machine and rehearsed, under the same PyTorch, and compares what they took.

    python trainings.py LIBRARY FILE.json [--public FOLDER] [--public-only] [--jobs N] [--only WORD]

LIBRARY is libvramlab_rehearsal.so; the rehearsed card gets the name, the memory, the capability and the multiprocessors of the real one.
A script ends after three steps of one optimizer. FILE.json has for each script PyTorch's peaks (allocated, reserved) on both sides, the
number of allocations, how many events deviate, and the bytes of the process by NVML, which nvidia-smi shows. FOLDER holds checkouts of public
scripts by name; those that lack something there are listed with their last line.
"""
import argparse
import concurrent.futures
import json
import os
import pathlib
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "rehearse"))
import proof  # noqa: E402
import recording  # noqa: E402

OWN = HERE.parent / "rehearse" / "own"
# The scripts of this repository: those of the proof, and networks of torchvision and transformers (`networks/`) with their words.
NETWORKS = [
    "torchvision_network resnet50 64", "torchvision_network resnet50 64 channels_last autocast", "torchvision_network vgg16 32",
    "torchvision_network mobilenet_v3_large 96", "torchvision_network densenet121 48 autocast", "torchvision_network efficientnet_b0 64 channels_last",
    "torchvision_network convnext_tiny 48 autocast", "torchvision_network resnet18 33 benchmark", "torchvision_network googlenet 31",
    "torchvision_network regnet_y_8gf 40 deterministic", "torchvision_network alexnet 256",
    "transformers_network gpt2 8 512 autocast", "transformers_network gpt2 4 1024", "transformers_network llama 4 1024 bfloat16 checkpointed",
    "transformers_network bert 16 128", "transformers_network t5 8 256", "transformers_network vit 32 1 autocast", "transformers_network whisper 4 64 autocast",
]
# Public scripts: the checkout, the script and its words.
PUBLIC = [
    ("nanoGPT", "train.py --dataset=openwebtext --compile=False --batch_size=12 --gradient_accumulation_steps=2 --eval_iters=1"),
    ("nanoGPT", "train.py config/train_shakespeare_char.py --compile=False --eval_iters=1"),
    ("llama2.c", "train.py --compile=False --eval_iters=1 --batch_size=64 --gradient_accumulation_steps=2"),
    ("minGPT", "projects/chargpt/chargpt.py"), ("minGPT", "projects/adder/adder.py"),
    ("examples/imagenet", "main.py --dummy -a resnet50 -b 64 -j 2 --epochs 1 --gpu 0"), ("examples/imagenet", "main.py --dummy -a vit_b_16 -b 32 -j 2 --epochs 1 --gpu 0"),
    ("examples/imagenet", "main.py --dummy -a mobilenet_v2 -b 128 -j 2 --epochs 1 --gpu 0"),
    ("examples/dcgan", "main.py --dataset fake --accel --niter 1 --batchSize 64"),
    ("examples/word_language_model", "main.py --accel --model LSTM --epochs 1"), ("examples/word_language_model", "main.py --accel --model Transformer --epochs 1"),
    ("timm", "train.py --data-dir images --model resnet26d --num-classes 4 -b 32 --amp --workers 2"),
    ("timm", "train.py --data-dir images --model convnext_nano --num-classes 4 -b 32 --channels-last --workers 2 --opt adamw"),
]


def prepare(public):
    """Makes the data that the public scripts read; only what is missing."""
    import numpy
    from PIL import Image

    random = numpy.random.default_rng(1)

    def words(path, most, count):
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists():
            random.integers(0, most, count, dtype=numpy.uint16).tofile(path)
    for part in ("train", "val"):
        words(public / f"nanoGPT/data/openwebtext/{part}.bin", 50257, 1 << 17)
        words(public / f"nanoGPT/data/shakespeare_char/{part}.bin", 65, 1 << 16)
    for part in (0, 1):
        words(public / f"llama2.c/data/TinyStories_all_data/data{part:02}.bin", 32000, 1 << 17)
    text = "O God, O God!" + "".join(chr(97 + letter % 26) if letter % 7 else " " for letter in random.integers(0, 1000, 60000))
    for path in ("minGPT/input.txt", "minGPT/projects/chargpt/input.txt"):
        (public / path).write_text(text)
    corpus = public / "examples/word_language_model/data/wikitext-2"
    if corpus.exists() and not (corpus / "train.txt").exists():
        (corpus / "train.txt").write_text((corpus / "test.txt").read_text())
    if corpus.exists() and not (corpus / "valid.txt").exists():
        (corpus / "valid.txt").write_text((corpus / "test.txt").read_text())
    for part, count in (("train", 48), ("validation", 12)):
        for kind in range(4):
            folder = public / f"timm/images/{part}/{kind}"
            folder.mkdir(parents=True, exist_ok=True)
            for index in range(count):
                Image.fromarray(random.integers(0, 255, (240, 240, 3), dtype=numpy.uint8)).save(folder / f"{index}.jpg")


def run(case, library, card, public):
    """What one script took, on the card (`card` is None) or rehearsed."""
    where, line = case
    script, *words = line.split()
    if where is None:
        script = str(HERE / "networks" / f"{script}.py" if words else OWN / script)
    with tempfile.TemporaryDirectory() as folder:
        variables = {"VRAMLAB_RECORDING_STEPS": "3", "PYTHONPATH": str(pathlib.Path(public or ".") / (where or ".")), "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "2"}
        if card:
            variables |= recording.environment(library, folder, card)
        base = str(pathlib.Path(public) / where) if where else folder
        return recording.record(sys.executable, [os.path.join(base, script), *words], variables, folder, base)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("library")
    parser.add_argument("file")
    parser.add_argument("--public")
    parser.add_argument("--jobs", type=int, default=4)
    parser.add_argument("--only", default="")
    parser.add_argument("--public-only", action="store_true")
    parser.add_argument("--without-card", action="store_true", help="rehearse both sides, to try the list")
    given = parser.parse_args()
    given.public = given.public and os.path.abspath(given.public)
    cases: list = [] if given.public_only else [(None, f"{name}.py") for name in proof.SCRIPTS] + [(None, line) for line in NETWORKS]
    if given.public:
        prepare(pathlib.Path(given.public))
        cases += PUBLIC
    cases = [case for case in cases if given.only in f"{case[0] or ''} {case[1]}"]
    card = proof.SOME_CARD if given.without_card else {}
    rows = []
    with concurrent.futures.ThreadPoolExecutor(given.jobs) as pool:
        real = list(pool.map(lambda case: run(case, given.library, card, given.public), cases))
        known = next((one["card"] for one in real if isinstance(one, dict)), None)
        if known is None:
            sys.exit(f"no script ran on a card: {real[0]}")
        rehearsed = list(pool.map(lambda pair: run(pair[0], given.library, known, given.public) if isinstance(pair[1], dict) else pair[1], zip(cases, real)))
    for (where, line), one, other in zip(cases, real, rehearsed):
        row: dict = {"source": where or "own", "script": line}
        if isinstance(one, list) or isinstance(other, list):
            row["failed"] = {"real": one if isinstance(one, list) else None, "rehearsed": other if isinstance(other, list) else None}
        else:
            same = proof.compare(one, other)
            row |= {"real": one["peaks"], "rehearsed": other["peaks"], "process_bytes": one["process_bytes"], "reserved_at_end": one["reserved_bytes"],
                    "ended_by": same["ended_by"], "events": same["events"], "deviating": same["deviating"], "elsewhere": same["elsewhere"], "first": same["deviations"][:3]}
        rows.append(row)
        if "failed" in row:
            print(f"{row['source']} {line}: failed {row['failed']}")
        else:
            (a, b), (c, d) = row["real"], row["rehearsed"]
            print(f"{row['source']} {line}: allocated {a} {100 * (c / max(a, 1) - 1):+.2f} %, reserved {b} {100 * (d / max(b, 1) - 1):+.2f} %, process {row['process_bytes']}, {row['ended_by'][0] or ''}", flush=True)
    import torch

    said = {"device": known["name"], "torch": torch.__version__, "cudnn": torch.backends.cudnn.version(), "card": known,
            "what": "peaks of PyTorch (allocated, reserved) on the card and rehearsed, bytes of the process by NVML after three steps: scripts/card/trainings.py", "rows": rows}
    with open(given.file, "w") as file:
        json.dump(said, file, separators=(",", ":"))


if __name__ == "__main__":
    main()
