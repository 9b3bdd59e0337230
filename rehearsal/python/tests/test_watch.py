"""The count of steps, the end of a program, and the answer."""

import json
import multiprocessing
import os
import signal
import time
import types

import pytest

from _vramlab_rehearsal.boot import schema, watch
from _vramlab_rehearsal.boot.answer import ANSWERS_HERE, Answer
from _vramlab_rehearsal.boot.watch import Watch


class Left(Exception):
    """The process would have ended."""


@pytest.fixture
def watched(settings, torch, monkeypatch):
    def leave(code):
        raise Left(code)

    monkeypatch.setattr(watch, "leave", leave)
    monkeypatch.setattr(os, "_exit", os._exit)
    answer = Answer(torch)
    made = Watch(answer)
    torch.cuda.memory.allocate(512)
    return made


def optimizer(torch):
    return torch.optim.Optimizer([torch.Tensor(1 << 40)])


def answer_of(answers):
    return json.loads((answers / f"{os.getpid()}.json").read_text())


def shape(kind):
    """The keys of a class of the schema, with those of the classes in it."""
    keys = {}
    for name, field in kind.__annotations__.items():
        inner = [field, *getattr(field, "__args__", ())]
        inner += [one for some in inner for one in getattr(some, "__args__", ())]
        keys[name] = next((shape(one) for one in inner if hasattr(one, "__total__")), None)
    return keys


def differs(value, keys, at=""):
    """Places at which a value has other keys than the schema."""
    if isinstance(value, list):
        return [place for one in value for place in differs(one, keys, at)]
    if value is None or keys is None:
        return []
    found = [f"{at}: {sorted(set(value) ^ set(keys))}"] if set(value) != set(keys) else []
    return found + [place for name in set(value) & set(keys) for place in differs(value[name], keys[name], f"{at}.{name}")]


def test_the_program_ends_after_the_steps_that_were_asked_for(watched, settings, torch, answers):
    settings["steps"] = 3
    one = optimizer(torch)
    watched.after_step(one, (), {})
    watched.after_step(one, (), {})
    assert answer_of(answers)["why"] == "running"
    with pytest.raises(Left):
        watched.after_step(one, (), {})
    told = answer_of(answers)
    assert (told["why"], told["steps"], told["pid"]) == ("steps", 3, os.getpid())
    assert (answers / f"{os.getpid()}.pickle").exists()
    watched.after_step(one, (), {})
    assert answer_of(answers)["steps"] == 3, "what comes after the end does not count"


def test_the_answer_has_the_keys_of_the_schema(watched, settings, torch, answers):
    settings["steps"] = 6
    watched.answer.oom = schema.Oom(card=0, requested=1, free=0, allocated=0, reserved=0, count=1, where="?", step=0)
    watched.answer.values = type("Values", (), {"report": lambda _: {"computed": 1, "places": [
        {"event": "assumed", "where": "a:1", "inside": "a:1", "operator": "item", "kind": "number", "count": 1, "true": "2"}], "beyond": 0}})()
    kept, one = [], optimizer(torch)
    with pytest.raises(Left):
        for _ in range(6):
            kept.append(torch.Tensor(torch.cuda.memory.allocate(512)))
            watched.after_step(one, (), {})
    told = answer_of(answers)
    assert told["growth"]["holders"] and told["held"] and told["cards"] and told["values"]["places"]
    assert differs(told, shape(schema.Answer)) == []


def test_the_keys_are_compared():
    assert differs({"flat": True, "marks": [], "holder": []}, shape(schema.Growth)) == [": ['holder', 'holders']"]


def test_the_program_ends_once_memory_is_flat(watched, settings, torch):
    settings["settled"] = {"least": 3, "most": 20, "seconds": 60}
    one = optimizer(torch)
    with pytest.raises(Left):
        for _ in range(8):
            watched.after_step(one, (), {})
    assert watched.answer.steps == 3


def train(watched, torch, work, keeps):
    """Steps that make `work` requests each, and free them, but for what `keeps` says of each; returns how many were made."""
    one, kept = optimizer(torch), []
    with pytest.raises(Left):
        for step in range(1, 100):
            made = [torch.cuda.memory.allocate(512) for _ in range(work)]
            if keeps(step):
                kept.append(made.pop())
            for address in made:
                torch.cuda.memory.free(address, 512)
            watched.after_step(one, (), {})
    return watched.answer.steps


@pytest.mark.parametrize("work, steps", [(10, 20), (1500, 7), (4000, 4)])
def test_cheap_steps_go_on_although_memory_is_flat(watched, settings, torch, work, steps):
    settings["settled"] = {"least": 3, "most": 20, "seconds": 60}
    assert train(watched, torch, work, lambda _: False) == steps


def test_what_every_ninth_step_keeps_is_watched_for_four_times(watched, settings, torch):
    settings["settled"] = {"least": 3, "most": 20, "seconds": 60}
    assert train(watched, torch, 10, lambda step: step % 9 == 0) == 38


def test_steps_that_differ_are_watched_up_to_a_limit(watched, settings, torch):
    settings["settled"] = {"least": 3, "most": 6, "seconds": 60}
    one, made = optimizer(torch), 0
    with pytest.raises(Left):
        for made in range(1, 9):
            torch.cuda.memory.allocate(512 * made)
            watched.after_step(one, (), {})
    assert made == 6


def test_the_program_ends_once_everything_was_seen(watched, settings, torch):
    settings["until"] = ["evaluation"]
    one = optimizer(torch)
    watched.after_step(one, (), {})
    watched.answer.seen["evaluation"] = True
    with pytest.raises(Left):
        watched.after_step(one, (), {})


def test_running_out_of_memory_is_told_at_its_line(watched, torch, answers):
    watched.at_out_of_memory(0, 4096, 8192, 100)
    assert answer_of(answers)["oom"]["count"] == 1
    watched.at_out_of_memory(0, 512, 8192, 50)
    oom = answer_of(answers)["oom"]
    assert (oom["requested"], oom["free"], oom["count"]) == (512, 50, 2), "the last time counts"
    assert oom["where"].startswith(f"{__file__}:")


def test_a_script_that_runs_out_again_and_again_is_not_held_up(watched, answers):
    watched.at_out_of_memory(0, 4096, 8192, 100)
    watched.seconds_of_telling = 1000
    watched.at_out_of_memory(0, 512, 8192, 50)
    oom = answer_of(answers)["oom"]
    assert (oom["requested"], oom["count"], watched.answer.oom["count"]) == (4096, 1, 2)


def test_peaks_that_the_script_resets_are_kept(watched, torch):
    watched.keep_resets()
    torch._C._cuda_resetPeakMemoryStats(0)
    torch.cuda.memory.PEAK = 100
    assert watched.answer.cards()[0]["peak_allocated"] == 512


def test_uses_besides_steps_are_seen(watched, torch, tmp_path):
    watched.mark_uses()
    seen, network = watched.answer.seen, torch.nn.Module()
    network.eval()
    assert not seen["evaluation"], "no optimizer yet"
    made = optimizer(torch)
    network.train()
    network.eval()
    torch.save({}, tmp_path / "saved")
    assert seen == {"evaluation": True, "saving": True, "generation": False} and made


def test_a_fork_starts_anew(watched, torch):
    watched.after_step(optimizer(torch), (), {})
    watched.answer.after_fork()
    assert (watched.answer.steps, watched.answer.growth.report()["marks"], watched.answer.roles.held) == (0, [], [])


def test_a_process_without_a_card_writes_no_answer(settings, torch, answers):
    assert Answer(torch).write("exit") is False
    assert list(answers.iterdir()) == []


def test_withheld_names_are_noted_once(settings, torch):
    from _vramlab_rehearsal.boot.withhold import withheld

    answer = Answer(torch)
    ANSWERS_HERE.append(answer)
    try:
        withheld("wandb")
        withheld("wandb")
    finally:
        ANSWERS_HERE.remove(answer)
    assert answer.withheld == ["wandb"]


def test_a_repository_without_an_owner_is_pushed_nowhere():
    from _vramlab_rehearsal.boot import withhold

    module = types.SimpleNamespace(
        HfApi=type("HfApi", (), {"create_repo": None}), RepoUrl=lambda url: url, CommitInfo=None
    )
    withhold.after_hub(module)
    assert module.HfApi().create_repo("out") == "https://huggingface.co/rehearsal/rehearsal"
    assert module.HfApi().create_repo(repo_id="out") == "https://huggingface.co/rehearsal/out"
    assert module.HfApi().create_repo(repo_id="org/out") == "https://huggingface.co/org/out"


def test_workers_of_loaders_end_with_the_script_and_other_processes_do_not():
    context, before = multiprocessing.get_context("fork"), signal.getsignal(signal.SIGCHLD)
    worker, other = (context.Process(target=time.sleep, args=(60,), daemon=daemon) for daemon in (True, False))
    worker.start(), other.start()
    try:
        watch.end_workers()
        worker.join(30)
        assert worker.exitcode == -signal.SIGKILL
        assert other.is_alive()
    finally:
        other.kill()
        signal.signal(signal.SIGCHLD, before)
