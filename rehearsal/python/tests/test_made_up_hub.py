"""Repositories of the hub that vramlab knows, in place of a network."""

import json
import sys
import types

import pytest

from _vramlab_rehearsal.boot import made_up, made_up_hub
from _vramlab_rehearsal.boot.settings import SETTINGS


@pytest.fixture(autouse=True)
def known(answers, tmp_path, monkeypatch):
    made_up.MADE_UP.clear()
    made_up.ASKED.clear()
    made_up_hub.MADE.clear()
    made_up_hub.WHOLE.clear()
    files = {"config.json": {"model_type": "gpt2"}, "unet/config.json": {"_class_name": "UNet"}}
    (tmp_path / "known.json").write_text(json.dumps({"org/model": files}))
    monkeypatch.setitem(SETTINGS, "known", str(tmp_path / "known.json"))


class Missing(Exception):
    pass


def hub():
    def download(repo_id, filename, **_words):
        raise Missing(repo_id)

    module = types.SimpleNamespace(hf_hub_download=download, snapshot_download=download, LocalEntryNotFoundError=Missing)
    module.try_to_load_from_cache = lambda repo_id, filename: None
    return module


def test_files_that_vramlab_knows_stand_for_the_hubs():
    module = hub()
    made_up_hub.after_download(module)
    assert module.try_to_load_from_cache("Org/Model", "config.json") is None
    with open(module.hf_hub_download("Org/Model", "config.json", subfolder="unet")) as file:
        assert json.load(file) == {"_class_name": "UNet"}
    # What is downloaded is found in the cache afterwards.
    with open(module.try_to_load_from_cache("Org/Model", "config.json")) as file:
        assert json.load(file) == {"model_type": "gpt2"}
    assert made_up.MADE_UP == ["the configuration of Org/Model, as vramlab knows it: config.json, unet/config.json"] and not made_up.ASKED


def test_a_repository_without_an_owner_is_the_one_of_that_name():
    assert made_up_hub.known("model") and made_up_hub.known("other") is None


def test_what_vramlab_does_not_know_is_told_and_fails():
    module = hub()
    made_up_hub.after_download(module)
    with pytest.raises(Missing):
        module.hf_hub_download("org/other", "config.json")
    with pytest.raises(Missing):
        module.hf_hub_download("org/model", "data.json", repo_type="dataset")
    assert made_up.ASKED == ["the hub: config.json of org/other", "the hub: data.json of org/model"]


def test_a_model_in_four_bits_has_the_configuration_of_the_whole_one():
    with open(made_up_hub.known("Org/Model-bnb-4bit") + "/config.json") as file:
        assert json.load(file) == {"model_type": "gpt2"}
    assert "Org/Model-bnb-4bit, as vramlab knows it of org/model:" in made_up.MADE_UP[0]
    assert made_up_hub.known("org/other-bnb-4bit") is None


def test_a_data_set_of_which_a_script_wants_no_file_is_there(monkeypatch):
    module = hub()
    module.snapshot_download = lambda repo_id, **_words: module.hf_hub_download(repo_id, "")
    made_up_hub.after_snapshot(module)
    monkeypatch.setitem(SETTINGS, "make_data", 16)
    assert module.snapshot_download("org/texts", repo_type="dataset", ignore_patterns=["*"])
    with pytest.raises(Missing):
        module.snapshot_download("org/texts", repo_type="dataset")
    monkeypatch.setitem(SETTINGS, "make_data", None)
    with pytest.raises(Missing):
        module.snapshot_download("org/texts", repo_type="dataset", ignore_patterns=["*"])


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        ({}, True),
        ({"allow_patterns": ["*.safetensors", "*.json"]}, True),
        ({"allow_patterns": "*.json"}, False),
        ({"ignore_patterns": ["*.gguf", "*.safetensors"]}, False),
    ],
)
def test_a_whole_repository_has_weights_if_the_script_downloads_them(monkeypatch, words, wanted):
    module = hub()
    module.snapshot_download = lambda repo_id, **_words: module.hf_hub_download(repo_id, "")
    made_up_hub.after_snapshot(module)
    monkeypatch.setattr(made_up_hub, "with_weights", lambda name, folder: folder + "-with-weights")
    assert module.snapshot_download("org/model", **words).endswith("-with-weights") == wanted


def test_a_whole_repository_has_weights_of_the_network_that_it_names(tmp_path, monkeypatch):
    class Network:
        pass

    monkeypatch.setitem(sys.modules, "torch", types.ModuleType("torch"))
    monkeypatch.setitem(sys.modules, "transformers", types.SimpleNamespace(Network=Network))
    asked = []
    monkeypatch.setattr(made_up, "weights_for", lambda torch, cls, name, words: asked.append((cls, name)) or "made")
    for kind, found in (("Network", "made"), ("Other", None)):
        (tmp_path / kind).mkdir()
        (tmp_path / kind / "config.json").write_text(json.dumps({"architectures": [kind]}))
        assert made_up_hub.with_weights("org/model", str(tmp_path / kind)) == found
    # A pipeline of diffusers has no network of its own.
    assert made_up_hub.with_weights("org/model", str(tmp_path)) is None
    assert made_up_hub.with_weights("org/model", str(tmp_path / "Network")) == "made" and asked == [(Network, "org/model")]
