#!/usr/bin/env python3
"""Makes data, configurations and weights for the scripts of `scripts.toml`: random values in the form that a script wants.

    scripts/rehearse/make.py KIND DIR [WORD…]

Needs numpy and Pillow; tokenizers and networks need the packages of Hugging Face. What it makes is of no use but to run."""

import json
import pathlib
import pickle
import struct
import sys
import wave

import numpy

DICE = numpy.random.RandomState(0)


def lines(count, words=30, known=3000):
    """Lines of made words."""
    return [" ".join(f"w{number}" for number in DICE.randint(0, known, words)) for _ in range(count)]


def image(path, size=64):
    from PIL import Image

    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(DICE.randint(0, 255, (size, size, 3), dtype=numpy.uint8)).save(path)


def mnist(folder, name="MNIST"):
    """The four files of MNIST, and of data sets in its form."""
    raw = folder / name / "raw"
    raw.mkdir(parents=True, exist_ok=True)
    for part, count in [("train", 60000), ("t10k", 10000)]:
        pixels, labels = DICE.randint(0, 255, count * 784, dtype=numpy.uint8), DICE.randint(0, 10, count, dtype=numpy.uint8)
        (raw / f"{part}-images-idx3-ubyte").write_bytes(struct.pack(">IIII", 2051, count, 28, 28) + pixels.tobytes())
        (raw / f"{part}-labels-idx1-ubyte").write_bytes(struct.pack(">II", 2049, count) + labels.tobytes())


def cifar(folder, classes="10"):
    """The pickles of CIFAR. Their check sums are not those of the real ones: `accept.py` lets torchvision take them."""
    base = folder / ("cifar-10-batches-py" if classes == "10" else "cifar-100-python")
    base.mkdir(parents=True, exist_ok=True)
    names = [f"data_batch_{part}" for part in range(1, 6)] + ["test_batch"] if classes == "10" else ["train", "test"]
    for name in names:
        count = 2000
        batch = {"data": DICE.randint(0, 255, (count, 3072), dtype=numpy.uint8)}
        for key in ("labels", "fine_labels", "coarse_labels"):
            batch[key] = DICE.randint(0, 10, count).tolist()
        (base / name).write_bytes(pickle.dumps(batch))
    kinds = [f"kind {number}" for number in range(int(classes))]
    (base / ("batches.meta" if classes == "10" else "meta")).write_bytes(
        pickle.dumps({"label_names": kinds, "fine_label_names": kinds}))


def tokens(folder, vocabulary="50257"):
    """nanoGPT's files of tokens."""
    for part in ("train", "val"):
        DICE.randint(0, int(vocabulary), 400000).astype(numpy.uint16).tofile(folder / f"{part}.bin")


def text(folder, *names):
    """Files of lines."""
    for name in names or ("train.txt", "valid.txt", "test.txt"):
        (folder / name).write_text("\n".join(lines(3000 if "train" in name else 500)) + "\n")


def images(folder, size="64", *parts):
    """A folder of classes for each part."""
    for part in parts or ("train", "validation", "val"):
        for kind in "ab":
            for number in range(100):
                image(folder / part / kind / f"{number}.png", int(size))


def pictures(folder, size="64"):
    """A folder of pictures."""
    for number in range(50):
        image(folder / f"{number}.png", int(size))


def masks(folder):
    """Pictures with masks, of Carvana's form."""
    from PIL import Image

    for number in range(20):
        image(folder / "imgs" / f"{number}.png", 256)
        (folder / "masks").mkdir(exist_ok=True)
        mask = DICE.randint(0, 2, (256, 256), dtype=numpy.uint8)
        mask[0, :2] = 0, 1
        Image.fromarray(mask).save(folder / "masks" / f"{number}.png")


def coco(folder, size="480"):
    """Pictures with boxes and polygons, as COCO."""
    size = int(size)
    for part, count in [("train2017", 64), ("val2017", 16)]:
        pictures, boxes = [], []
        for number in range(count):
            image(folder / part / f"{number:012d}.jpg", size)
            pictures.append({"id": number, "file_name": f"{number:012d}.jpg", "height": size, "width": size})
            for _ in range(DICE.randint(1, 12)):
                x, y, w, h = (int(value) for value in DICE.randint(20, size // 3, 4))
                boxes.append({"id": len(boxes) + 1, "image_id": number, "category_id": int(DICE.randint(1, 90)), "iscrowd": 0,
                              "area": w * h, "bbox": [x, y, w, h], "segmentation": [[x, y, x + w, y, x + w, y + h, x, y + h]]})
        kinds = [{"id": number, "name": f"kind {number}"} for number in range(1, 91)]
        annotations = folder / "annotations"
        annotations.mkdir(exist_ok=True)
        whole = {"images": pictures, "annotations": boxes, "categories": kinds}
        (annotations / f"instances_{part}.json").write_text(json.dumps(whole))


def yolo(folder):
    """Pictures with boxes, as YOLO's trainers want them, and their description."""
    for part in ("train", "val"):
        for number in range(32):
            image(folder / "images" / part / f"{number}.jpg", 320)
            (folder / "labels" / part).mkdir(parents=True, exist_ok=True)
            rows = [f"{DICE.randint(80)} " + " ".join(f"{value:.3f}" for value in DICE.uniform(0.2, 0.4, 4)) for _ in range(8)]
            (folder / "labels" / part / f"{number}.txt").write_text("\n".join(rows))
    names = "\n".join(f"  {number}: kind {number}" for number in range(80))
    (folder / "data.yaml").write_text(f"path: {folder.resolve()}\ntrain: images/train\nval: images/val\nnames:\n{names}\n")


def planetoid(folder, name="cora"):
    """A graph of papers, as Planetoid's: pickles of sparse matrices."""
    import scipy.sparse

    raw = folder / name.capitalize() / "raw"
    raw.mkdir(parents=True, exist_ok=True)
    nodes, features, classes, trained, tested = 2708, 1433, 7, 140, 1000
    one_hot = numpy.eye(classes, dtype=numpy.int32)[DICE.randint(0, classes, nodes)]
    words = scipy.sparse.csr_matrix((DICE.rand(nodes, features) < 0.0127).astype(numpy.float32))
    graph = {node: DICE.randint(0, nodes, 4).tolist() for node in range(nodes)}
    rest = nodes - tested
    parts = {"x": words[:trained], "y": one_hot[:trained], "tx": words[rest:], "ty": one_hot[rest:],
             "allx": words[:rest], "ally": one_hot[:rest], "graph": graph}
    for part, value in parts.items():
        (raw / f"ind.{name}.{part}").write_bytes(pickle.dumps(value))
    (raw / f"ind.{name}.test.index").write_text("\n".join(str(node) for node in range(rest, nodes)))


def tu_dataset(folder, name="MUTAG"):
    """Graphs with labels, as the TU data sets."""
    raw = folder / name / "raw"
    raw.mkdir(parents=True, exist_ok=True)
    edges, belongs, count = [], [], 0
    for graph in range(1, 189):
        size = DICE.randint(10, 28)
        belongs += [graph] * size
        for node in range(1, size):
            edges += [(count + node, count + node + 1), (count + node + 1, count + node)]
        count += size
    write = lambda part, rows: (raw / f"{name}_{part}.txt").write_text("\n".join(str(row) for row in rows) + "\n")
    write("A", (f"{one}, {other}" for one, other in edges))
    write("graph_indicator", belongs)
    write("graph_labels", DICE.choice([-1, 1], 188))
    write("node_labels", DICE.randint(0, 7, count))
    write("edge_labels", DICE.randint(0, 4, len(edges)))


def glue(folder):
    """MRPC, under the name that `load_dataset` finds in the working folder."""
    import csv

    folder.mkdir(parents=True, exist_ok=True)
    names = {"train": 400, "validation": 64, "test": 64}
    for part, count in names.items():
        with open(folder / f"{part}.csv", "w", newline="") as file:
            rows = csv.writer(file)
            rows.writerow(["sentence1", "sentence2", "label", "idx"])
            for number in range(count):
                one, other = lines(2, DICE.randint(5, 40))
                rows.writerow([one, other, DICE.randint(2), number])
    parts = "\n".join(f"  - split: {part}\n    path: {part}.csv" for part in names)
    info = ("dataset_info:\n- config_name: mrpc\n  features:\n  - name: sentence1\n    dtype: string\n  - name: sentence2\n"
            "    dtype: string\n  - name: label\n    dtype:\n      class_label:\n        names:\n          '0': no\n"
            "          '1': yes\n  - name: idx\n    dtype: int32\n")
    (folder / "README.md").write_text(f"---\n{info}configs:\n- config_name: mrpc\n  data_files:\n{parts}\n---\n")


def rows(folder, kind="text", *more):
    """Lines of JSON for the trainers of TRL and PEFT."""
    def sentence(most):
        return lines(1, DICE.randint(5, most))[0]

    def message(role, most):
        return {"role": role, "content": sentence(most)}

    makers = {
        "text": lambda: {"text": sentence(200)},
        "instruction": lambda: {"instruction": sentence(60), "input": "", "output": sentence(120)},
        "preference": lambda: {"prompt": sentence(60), "chosen": sentence(120), "rejected": sentence(120)},
        "judged": lambda: {"prompt": sentence(60), "completion": sentence(120), "label": bool(DICE.randint(2))},
        "prompt": lambda: {"prompt": sentence(60)},
        "messages": lambda: {"messages": [message("user", 60), message("assistant", 120)]},
    }
    for part in ("train", *more):
        (folder / f"{part}.json").write_text(json.dumps([makers[kind]() for _ in range(400)]))


def speech(folder, rate="16000"):
    """Short recordings of noise with sentences: a table of them, a list as of LJSpeech, and lines of JSON."""
    table, names, listed = ["file_name,sentence"], [], []
    for number in range(32):
        noise = DICE.randint(-2000, 2000, int(rate) * DICE.randint(1, 4)).astype(numpy.int16)
        with wave.open(str(folder / f"{number}.wav"), "wb") as file:
            file.setnchannels(1)
            file.setsampwidth(2)
            file.setframerate(int(rate))
            file.writeframes(noise.tobytes())
        sentence = lines(1, 8)[0]
        seconds = round(len(noise) / int(rate), 2)
        listed.append({"audio": {"path": str(folder / f"{number}.wav")}, "sentence": sentence, "duration": seconds})
        table.append(f"{number}.wav,{sentence}")
        names.append(f"{number}|{sentence}")
    (folder / "metadata.csv").write_text("\n".join(table) + "\n")
    (folder / "names.txt").write_text("\n".join(names))
    (folder / "list.json").write_text("".join(json.dumps(line) + "\n" for line in listed))


def whisper(folder, name="whisper-tiny"):
    """Whisper with random weights, what makes spectrograms for it, and a tokenizer of made words in its form."""
    import transformers
    from tokenizers import ByteLevelBPETokenizer
    from transformers.models.whisper.tokenization_whisper import LANGUAGES

    made = ByteLevelBPETokenizer()
    made.train_from_iterator(lines(3000), 4000)
    made.save_model(str(folder))
    marks = ["<|endoftext|>", "<|startoftranscript|>", *(f"<|{language}|>" for language in LANGUAGES), "<|translate|>",
             "<|transcribe|>", "<|startoflm|>", "<|startofprev|>", "<|nospeech|>", "<|notimestamps|>"]
    files = {"vocab": str(folder / "vocab.json"), "merges": str(folder / "merges.txt")}
    files = files if transformers.__version__ >= "5" else {"vocab_file": files["vocab"], "merges_file": files["merges"]}
    words = transformers.WhisperTokenizer(**files, pad_token=marks[0])
    words.add_special_tokens({"additional_special_tokens": marks})
    transformers.WhisperProcessor(transformers.WhisperFeatureExtractor(), words).save_pretrained(folder)
    network(folder, name, kind=None)


def tokenizer(folder, kind="bpe", words="4000"):
    """A tokenizer trained on made words."""
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors, trainers
    from transformers import PreTrainedTokenizerFast

    special = ["<s>", "</s>", "<pad>", "<unk>", "<mask>"] if kind == "bpe" else ["[CLS]", "[SEP]", "[PAD]", "[UNK]", "[MASK]"]
    if kind == "bpe":
        made = Tokenizer(models.BPE(unk_token=None))
        made.pre_tokenizer = pre_tokenizers.ByteLevel()
        trainer = trainers.BpeTrainer(vocab_size=int(words), special_tokens=special)
    else:
        made = Tokenizer(models.WordPiece(unk_token=special[3]))
        made.normalizer, made.pre_tokenizer = normalizers.BertNormalizer(), pre_tokenizers.BertPreTokenizer()
        trainer = trainers.WordPieceTrainer(vocab_size=int(words), special_tokens=special)
    made.train_from_iterator(lines(3000), trainer)
    if kind != "bpe":
        made.post_processor = processors.BertProcessing((special[1], 1), (special[0], 0))
    fast = PreTrainedTokenizerFast(
        tokenizer_object=made, bos_token=special[0], eos_token=special[1], pad_token=special[2], unk_token=special[3],
        mask_token=special[4], cls_token=special[0], sep_token=special[1], model_max_length=512)
    fast.chat_template = ("{% for message in messages %}{{ message['role'] + ': ' + message['content'] + eos_token }}"
                          "{% endfor %}{% if add_generation_prompt %}{{ 'assistant: ' }}{% endif %}")
    fast.save_pretrained(folder)


# Real configurations, some with fewer layers, named so.
NETWORKS = {
    "gpt2": ("GPT2Config", "AutoModelForCausalLM", {}),
    "llama-small": ("LlamaConfig", "AutoModelForCausalLM", dict(hidden_size=512, intermediate_size=1376, num_hidden_layers=8,
                    num_attention_heads=8, max_position_embeddings=1024)),
    "qwen2-0.5b": ("Qwen2Config", "AutoModelForCausalLM", dict(vocab_size=151936, hidden_size=896, intermediate_size=4864,
                   num_hidden_layers=24, num_attention_heads=14, num_key_value_heads=2, tie_word_embeddings=True)),
    "bert-base": ("BertConfig", "AutoModelForSequenceClassification", dict(vocab_size=28996)),
    "whisper-tiny": ("WhisperConfig", "WhisperForConditionalGeneration", dict(d_model=384, encoder_layers=4, decoder_layers=4,
                     encoder_attention_heads=6, decoder_attention_heads=6, encoder_ffn_dim=1536, decoder_ffn_dim=1536)),
    "llama-reward": ("LlamaConfig", "AutoModelForSequenceClassification", dict(hidden_size=512, intermediate_size=1376,
                     num_hidden_layers=8, num_attention_heads=8, max_position_embeddings=1024, num_labels=1)),
    "t5-small": ("T5Config", "AutoModelForSeq2SeqLM", {}),
    "vit-base": ("ViTConfig", "AutoModelForImageClassification", {}),
}


def network(folder, name, kind="bpe"):
    """A network of transformers with random weights, and a tokenizer."""
    import transformers

    config, model, figures = NETWORKS[name]
    made = getattr(transformers, model)
    config = getattr(transformers, config)(**figures)
    made = made.from_config(config) if model.startswith("Auto") else made(config)
    made.save_pretrained(folder)
    if kind:
        tokenizer(folder, kind)


def font(folder, name):
    """A font under the name of one that would be downloaded."""
    import matplotlib

    source = pathlib.Path(matplotlib.get_data_path()) / "fonts" / "ttf" / "DejaVuSans.ttf"
    (folder / name).write_bytes(source.read_bytes())


def torchvision_weights(folder, name, file):
    """Random weights where torch.hub would have put those that it downloads."""
    import torch
    import torchvision

    torch.save(getattr(torchvision.models, name)().state_dict(), folder / file)


def diffusers_vae(folder):
    """The autoencoder of Stable Diffusion with random weights."""
    from diffusers import AutoencoderKL

    blocks = dict(down_block_types=["DownEncoderBlock2D"] * 4, up_block_types=["UpDecoderBlock2D"] * 4)
    AutoencoderKL(block_out_channels=[128, 256, 512, 512], layers_per_block=2, latent_channels=4, **blocks).save_pretrained(folder)


def main():
    kind, folder, *words = sys.argv[1:]
    made = globals().get(kind)
    if not callable(made):
        sys.exit(f"make.py makes no {kind}")
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    made(folder, *words)


if __name__ == "__main__":
    main()
