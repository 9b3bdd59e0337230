"""Some ranks of many."""

import json
import os
import types

import pytest

from _vramlab_rehearsal.boot import settings as module
from _vramlab_rehearsal.boot import world as world_module
from _vramlab_rehearsal.boot.world import World, problem


@pytest.fixture
def world(settings, tmp_path, monkeypatch):
    settings["world"] = {"size": 4, "started": [0, 1], "meet": str(tmp_path), "variables": ["RANK"]}
    monkeypatch.setitem(module.WORLD_VARIABLES, "RANK", "1")
    made = World(types.SimpleNamespace())
    made.groups = {"0": [0, 1, 2, 3], "3": [2, 3]}
    return made


def test_members_by_the_key_of_an_identity(world):
    assert world.members("default_pg/0//cuda//0") == [0, 1, 2, 3]
    assert world.members("x/3//cuda//0:1") == [2, 3]
    assert world.members("x/3//cuda//0:9") is None
    assert world.members("x/7//cuda//0") is None
    assert world.members("something/else") is None


def test_who_sets_a_key(world):
    assert world.setter("x/3//cuda//0") == 2
    assert world.setter("x/0//cuda//UniqueNCCLID:x") is None
    assert world.setter(world_module.HOSTS + "0/1/3") == 3
    assert world.setter("barrier") is None


def test_all_wait_only_if_each_started_rank_does(world):
    file = types.SimpleNamespace(check=lambda keys: "there" in keys)
    world.wait(["absent"])
    assert not world.all_wait(file), "rank 0 does not wait"
    with open(world.mark(0), "w") as mark:
        json.dump(["there"], mark)
    assert not world.all_wait(file), "rank 0 waits for what exists"
    with open(world.mark(0), "w") as mark:
        json.dump([], mark)
    assert world.all_wait(file)
    world.go_on()
    assert not world.all_wait(file)


def test_a_script_that_numbers_its_ranks_itself_is_refused(world, monkeypatch, answers):
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "4")
    world.check(-1, -1)
    world.check(1, 4)
    with pytest.raises(RuntimeError, match="--world and --ranks"):
        world.check(0, 4)
    assert (answers / f"{os.getpid()}.problem").exists()


def test_a_problem_is_an_error_and_a_file(answers):
    assert str(problem("cannot")) == "cannot"
    assert (answers / f"{os.getpid()}.problem").read_text() == "cannot"


def test_a_launcher_becomes_the_rank(world, monkeypatch):
    monkeypatch.setitem(module.WORLD_VARIABLES, "LOCAL_RANK", "1")
    called = []
    monkeypatch.setattr(os, "execvpe", lambda *words: called.append(words))
    launch = type("elastic_launch", (), {})
    world_module.after_launcher(types.SimpleNamespace(elastic_launch=launch))
    one = launch()
    one._entrypoint = "python"
    one("train.py", "--rank=${local_rank}")
    [(program, words, environment)] = called
    assert (program, words, environment["RANK"]) == ("python", ["python", "train.py", "--rank=1"], "1")
    one._entrypoint = print
    with pytest.raises(RuntimeError, match="a function"):
        one()
