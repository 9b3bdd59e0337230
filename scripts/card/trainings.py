#!/usr/bin/env python3
"""Trains each of a list of scripts on the card of this machine, or rehearsed, and compares what they took.

    python trainings.py record RECORDINGS.json.gz [--rehearsed LIBRARY --card CARD.json] [--public FOLDER] [--list proof|networks|others|predicted|public] [--times N] [--jobs N] [--only WORD] [--seconds S]
    python trainings.py compare REAL.json.gz REHEARSED.json.gz FILE.json

`record` without LIBRARY runs on the card, and needs none of this project's programs; LIBRARY is libvramlab_rehearsal.so, and CARD.json has the
name, the memory, the capability and the multiprocessors of the real card (without it an H100's). A script ends after three steps of one optimizer.
FILE.json has for each script PyTorch's peaks (allocated, reserved) on both sides, those of every repetition on the card, the number of allocations,
how many events deviate, and the bytes of the process by NVML, which nvidia-smi shows. FOLDER holds checkouts of public scripts by name; those
that lack something there are listed with their last line. The order is drawn with a fixed seed, so that what S seconds leave out is drawn too.
"""
import argparse
import concurrent.futures
import gzip
import json
import os
import pathlib
import random
import sys
import tempfile
import time

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
# Networks of other kinds, which no figure was fitted on.
OTHERS = [
    "timm_network convnext_nano 64 autocast", "timm_network vit_small_patch16_224 64 autocast", "timm_network swin_tiny_patch4_window7_224 32",
    "timm_network mobilenetv4_conv_small 128 channels_last", "timm_network regnety_032 48", "timm_network mixer_b16_224 32 autocast", "timm_network nfnet_l0 32",
    "timm_network coatnet_0_rw_224 24 autocast", "timm_network ghostnet_100 64", "timm_network hrnet_w18 24 channels_last", "timm_network efficientnetv2_rw_t 32 autocast channels_last",
    "timm_network resnest26d 32", "timm_network xception41 16", "vision_task fasterrcnn_resnet50_fpn 4", "vision_task maskrcnn_resnet50_fpn 2", "vision_task retinanet_resnet50_fpn 4 autocast",
    "vision_task deeplabv3_resnet50 8", "vision_task fcn_resnet50 8 autocast", "vision_task lraspp_mobilenet_v3_large 16", "vision_task r3d_18 8", "vision_task mc3_18 8 autocast", "vision_task r2plus1d_18 4 benchmark",
    "torchvision_network inception_v3 32", "torchvision_network shufflenet_v2_x1_0 128 autocast", "torchvision_network squeezenet1_1 64", "torchvision_network mnasnet1_0 64 channels_last",
    "torchvision_network wide_resnet50_2 32 float16", "torchvision_network resnext50_32x4d 48 autocast channels_last", "torchvision_network swin_v2_t 24 autocast",
    "torchvision_network maxvit_t 16", "prefetched_network resnet50 48", "torchvision_network vgg19_bn 24 benchmark", "torchvision_network resnet50 64 benchmark",
    "adapted_network gpt2 8 512 autocast", "adapted_network llama 4 1024 bfloat16 checkpointed", "adapted_network llama 4 512 dora", "adapted_network llama 4 1024 autocast",
    "transformers_network qwen3 4 512 autocast", "transformers_network mixtral 4 512", "transformers_network opt 8 512 bfloat16", "transformers_network phi 4 512 autocast checkpointed",
    "transformers_network gpt_neox 4 1024", "transformers_network roberta 16 256 autocast", "transformers_network wav2vec2 4 48000", "transformers_network gpt2 8 1024 bfloat16 checkpointed",
    "compiled_network resnet50 64 autocast", "compiled_network vit_b_16 32", "compiled_network gpt2 8", "compiled_network gpt2 8 autocast reduce-overhead",
]
# Networks that `vramlab predict` has itself, some with batches that no table has.
PREDICTED = [
    "torchvision_network resnet18 48", "torchvision_network resnet18 63 autocast", "torchvision_network resnet34 64", "torchvision_network resnet50 64", "torchvision_network resnet50 50 autocast",
    "torchvision_network resnet50 96 autocast channels_last", "torchvision_network vgg16 32", "torchvision_network vgg16 27 autocast", "torchvision_network mobilenet_v2 96",
    "torchvision_network mobilenet_v2 64 autocast", "torchvision_network densenet121 48", "torchvision_network densenet121 32 autocast", "torchvision_network convnext_tiny 64",
    "torchvision_network convnext_small 37 autocast", "torchvision_network convnext_base 16", "torchvision_network convnext_large 24 autocast",
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
    """What one script took, on the card (`library` is None) or rehearsed."""
    where, line = case
    script, *words = line.split()
    if where is None:
        script = str(HERE / "networks" / f"{script}.py" if words else OWN / script)
    with tempfile.TemporaryDirectory() as folder:
        variables = {"VRAMLAB_RECORDING_STEPS": "3", "PYTHONPATH": str(pathlib.Path(public or ".") / (where or ".")), "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "2",
                     "TORCHINDUCTOR_COMPILE_THREADS": "2"}
        if library:
            variables |= recording.environment(library, folder, card)
        base = str(pathlib.Path(public) / where) if where else folder
        return recording.record(sys.executable, [os.path.join(base, script), *words], variables, folder, base)


def cases_of(lists, public, only):
    """Pairs of a checkout (None: this repository's) and the line of a script."""
    known: dict = {"proof": [(None, f"{name}.py") for name in proof.SCRIPTS], "networks": [(None, line) for line in NETWORKS], "others": [(None, line) for line in OTHERS],
             "predicted": [(None, line) for line in PREDICTED],
             "public": PUBLIC if public else []}
    return [case for name in lists for case in known[name] if only in f"{case[0] or ''} {case[1]}"]


def record(given):
    """Writes down what each script did, on one side."""
    public = given.public and os.path.abspath(given.public)
    card = json.loads(pathlib.Path(given.card).read_text()) if given.card else proof.SOME_CARD
    if public:
        prepare(pathlib.Path(public))
    cases = cases_of(given.list or ["proof", "networks", "public"], public, given.only) * given.times
    random.Random(1).shuffle(cases)
    begin = time.monotonic()

    def one(case):
        if time.monotonic() - begin > given.seconds:
            return None
        found = run(case, given.rehearsed, card, public)
        shown = found if isinstance(found, list) else (*found["peaks"], found["process_bytes"], found["ended_by"])
        print(f"{time.monotonic() - begin:.0f} s, {case[0] or ''} {case[1]}:", *shown, flush=True)
        return {"source": case[0] or "own", "script": case[1], "found": found}
    with concurrent.futures.ThreadPoolExecutor(given.jobs) as pool:
        rows = [row for row in pool.map(one, cases) if row]
    import torch

    said = {"torch": torch.__version__, "cudnn": torch.backends.cudnn.version(), "left_out": len(cases) - len(rows), "rows": rows}
    with gzip.open(given.file, "wt") as file:
        json.dump(said, file, separators=(",", ":"))


def read(path):
    """What `record` wrote: the whole, and the recordings by script."""
    with gzip.open(path) as file:
        said, found = json.load(file), {}
    for row in said["rows"]:
        found.setdefault((row["source"], row["script"]), []).append(row["found"])
    return said, found


def row_of(key, ones, others):
    """One script's figures on both sides; `ones` are its repetitions on the card."""
    row: dict = {"source": key[0], "script": key[1]}
    ran, other = [one for one in ones if isinstance(one, dict)], others[0]
    if not ran or isinstance(other, list):
        return row | {"failed": {"real": None if ran else ones[0], "rehearsed": other if isinstance(other, list) else None}}
    one, same = ran[0], proof.compare(ran[0], other)
    row |= {"real": one["peaks"], "rehearsed": other["peaks"], "process_bytes": one["process_bytes"], "reserved_at_end": one["reserved_bytes"],
            "ended_by": same["ended_by"], "events": same["events"], "deviating": same["deviating"], "elsewhere": same["elsewhere"], "first": same["deviations"][:3]}
    return row | ({"repeated": [[*one["peaks"], one["process_bytes"], one["reserved_bytes"]] for one in ran]} if len(ran) > 1 else {})


def compare(given):
    """Compares two files of `record`."""
    (said, real), (_, rehearsed) = read(given.real), read(given.rehearsed)
    rows = [row_of(key, ones, rehearsed[key]) for key, ones in real.items() if key in rehearsed]
    for row in rows:
        if "failed" in row:
            print(f"{row['source']} {row['script']}: failed {row['failed']}")
        else:
            (a, b), (c, d) = row["real"], row["rehearsed"]
            print(f"{row['source']} {row['script']}: allocated {a} {100 * (c / max(a, 1) - 1):+.2f} %, reserved {b} {100 * (d / max(b, 1) - 1):+.2f} %, process {row['process_bytes']}, {row['ended_by'][0] or ''}")
    card = next(one["card"] for ones in real.values() for one in ones if isinstance(one, dict))
    made = {"device": card["name"], "torch": said["torch"], "cudnn": said["cudnn"], "card": card,
            "what": "peaks of PyTorch (allocated, reserved) on the card and rehearsed, bytes of the process by NVML after three steps: scripts/card/trainings.py", "rows": rows}
    with open(given.file, "w") as file:
        json.dump(made, file, separators=(",", ":"))


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    verbs = parser.add_subparsers(required=True)
    verb = verbs.add_parser("record")
    verb.set_defaults(run=record)
    verb.add_argument("file")
    verb.add_argument("--rehearsed", metavar="LIBRARY")
    verb.add_argument("--card")
    verb.add_argument("--public")
    verb.add_argument("--list", action="append")
    verb.add_argument("--times", type=int, default=1)
    verb.add_argument("--jobs", type=int, default=4)
    verb.add_argument("--only", default="")
    verb.add_argument("--seconds", type=float, default=1e9)
    verb = verbs.add_parser("compare")
    verb.set_defaults(run=compare)
    for name in ("real", "rehearsed", "file"):
        verb.add_argument(name)
    given = parser.parse_args()
    given.run(given)


if __name__ == "__main__":
    main()
