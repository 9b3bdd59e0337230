"""Repositories of the hub that vramlab knows, in place of a network."""

import json
import types

import pytest

from _vramlab_rehearsal.boot import made_up, made_up_hub
from _vramlab_rehearsal.boot.settings import SETTINGS


@pytest.fixture(autouse=True)
def known(answers, tmp_path, monkeypatch):
    made_up.MADE_UP.clear()
    made_up.ASKED.clear()
    made_up_hub.MADE.clear()
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
