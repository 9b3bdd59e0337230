"""What stands for downloads."""

import json
import os
import types

import pytest

from _vramlab_rehearsal.boot import made_up


@pytest.fixture(autouse=True)
def lists(answers):
    made_up.MADE_UP.clear()
    made_up.ASKED.clear()


def told(answers, ending):
    return json.loads((answers / f"{os.getpid()}{ending}").read_text())


def test_sentences_are_told_once(answers):
    made_up.made_up("the weights of a")
    made_up.made_up("the weights of a")
    made_up.asked("the hub: b")
    assert (told(answers, ".made-up"), told(answers, ".asked")) == (["the weights of a"], ["the hub: b"])


def test_files_of_weights_are_holes(tmp_path):
    path = tmp_path / "model.safetensors"
    size = made_up.write_sparse(path, [("a", "F32", (1000, 1000), 4_000_000), ("b", "BF16", (3,), 6)])
    length = int.from_bytes(path.read_bytes()[:8], "little")
    head = json.loads(path.read_bytes()[8 : 8 + length])
    assert size == 4_000_006 and path.stat().st_size == 8 + length + size and length % 8 == 0
    assert head["b"] == {"dtype": "BF16", "shape": [3], "data_offsets": [4_000_000, 4_000_006]}
    assert path.stat().st_blocks * 512 < 100_000


@pytest.mark.parametrize(
    ("files", "has"),
    [
        (["config.json"], False),
        (["model.safetensors"], True),
        (["a.gguf"], True),
        (["model.safetensors.index.json", "one.safetensors"], False),
        (["model.safetensors.index.json", "one.safetensors", "two.safetensors"], True),
    ],
)
def test_folders_with_all_weights(tmp_path, files, has):
    for name in files:
        text = json.dumps({"weight_map": {"a": "one.safetensors", "b": "two.safetensors"}}) if name.endswith("index.json") else ""
        (tmp_path / name).write_text(text)
    assert made_up.has_weights(str(tmp_path)) is has


def test_a_stand_in_has_the_folders_files_and_weights(tmp_path, answers):
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    (folder / "model.safetensors.index.json").write_text("{}")
    made = made_up.stand_in(str(folder), [("a", "F32", (2,), 8)], "org/model")
    assert sorted(os.listdir(made)) == ["config.json", "model.safetensors"]
    assert "org/model" in told(answers, ".made-up")[0]


def test_state_dicts_that_would_be_downloaded_are_made_up(answers, tmp_path):
    taken = []

    class Module:
        def load_state_dict(self, state):
            taken.append(state)

    keys = types.SimpleNamespace(_IncompatibleKeys=lambda missing, unexpected: (missing, unexpected))
    load = lambda url, *_args, **_words: {"from": url}
    hub = types.SimpleNamespace(load_state_dict_from_url=load, get_dir=lambda: str(tmp_path))
    torch = types.SimpleNamespace(hub=hub, nn=types.SimpleNamespace(Module=Module, modules=types.SimpleNamespace(module=keys)))
    made_up.without_downloads(torch)
    state = hub.load_state_dict_from_url("https://example.com/resnet.pth?x=1")
    assert Module().load_state_dict(state) == ([], []) and not taken
    Module().load_state_dict({"a": 1})
    assert taken == [{"a": 1}]
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "checkpoints" / "there.pth").write_text("")
    assert hub.load_state_dict_from_url("https://example.com/there.pth") == {"from": "https://example.com/there.pth"}


def test_a_request_that_fails_is_told_and_fails(answers):
    def urlopen(_what):
        raise OSError("no network")

    module = types.SimpleNamespace(urlopen=urlopen)
    made_up.after_urllib(module)
    with pytest.raises(OSError, match="no network"):
        module.urlopen("https://example.com")
    assert told(answers, ".asked") == ["a server: https://example.com"]


def test_timms_weights_stay(answers):
    module = types.SimpleNamespace(load_pretrained=None)
    made_up.after_timm(module)
    assert module.load_pretrained is None
    module.load_pretrained = lambda model: 1 / 0
    made_up.after_timm(module)
    assert module.load_pretrained(types.SimpleNamespace(pretrained_cfg={"hf_hub_id": "timm/vit"})) is None
    assert "timm/vit" in told(answers, ".made-up")[0]


def test_a_layout_has_each_tensor_once():
    class Kind:
        def __init__(self, name, itemsize):
            self.name, self.itemsize = name, itemsize

        def __str__(self):
            return "torch." + self.name

    def tensor(count, kind, is_float):
        return types.SimpleNamespace(dtype=kind, is_floating_point=lambda: is_float, shape=(count,), numel=lambda: count)

    float32, int64, bfloat16 = Kind("float32", 4), Kind("int64", 8), Kind("bfloat16", 2)
    weight, steps = tensor(10, float32, True), tensor(1, int64, False)
    model = types.SimpleNamespace(
        named_parameters=lambda remove_duplicate: [("b.weight", weight)],
        state_dict=lambda keep_vars: {"b.weight": weight, "a.tied": weight, "steps": steps},
    )
    assert made_up.layout(model, bfloat16) == [("b.weight", "BF16", (10,), 20), ("steps", "I64", (1,), 8)]


def test_files_of_weights_are_as_large_as_the_hubs(tmp_path, monkeypatch, answers):
    monkeypatch.setattr(made_up, "MOST_OF_A_FILE", 100)
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    made = made_up.stand_in(str(folder), [("a", "F32", (20,), 80), ("b", "F32", (10,), 40), ("c", "F32", (5,), 20)], "org/model")
    assert sorted(os.listdir(made)) == [
        "config.json", "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors", "model.safetensors.index.json"
    ]
    with open(os.path.join(made, "model.safetensors.index.json")) as file:
        assert json.load(file)["weight_map"]["b"] == "model-00002-of-00002.safetensors"


def test_open_clips_weights_stay(answers):
    def download(what, **_words):
        made_up.asked("the hub: the weights")
        raise FileNotFoundError("no network")

    module = types.SimpleNamespace(download_pretrained=download, load_checkpoint=lambda model, path: 1 / 0)
    made_up.after_open_clip(module)
    assert module.load_checkpoint(None, module.download_pretrained({"hf_hub": "laion/clip/"})) == {}
    assert "laion/clip:" in told(answers, ".made-up")[0] and not made_up.ASKED
