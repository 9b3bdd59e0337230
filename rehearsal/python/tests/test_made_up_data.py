"""Data that is made up."""

import builtins
import io
import json
import os
import string
import types

import pytest

from _vramlab_rehearsal.boot import made_up, made_up_data
from _vramlab_rehearsal.boot.settings import SETTINGS

pytestmark = pytest.mark.usefixtures("data_made_up")


class Table:
    """A data set as far as it is used here."""

    def __init__(self, columns):
        self.columns = columns
        self.info = types.SimpleNamespace(description="")

    @classmethod
    def from_dict(cls, columns):
        return cls(columns)

    @property
    def column_names(self):
        return list(self.columns)

    def __len__(self):
        return len(next(iter(self.columns.values())))

    def __getitem__(self, at):
        return self.columns[at] if isinstance(at, str) else {name: values[at] for name, values in self.columns.items()}

    def select(self, indices):
        if max(indices) >= len(self):
            raise IndexError(max(indices))
        return self.like({name: [values[at] for at in indices] for name, values in self.columns.items()})

    def train_test_split(self, test_size=None, train_size=None):
        if test_size >= len(self):
            raise ValueError(test_size)
        return {"train": self.select(range(len(self) - test_size)), "test": self.select(range(test_size))}

    def remove_columns(self, names):
        missing = [name for name in names if name not in self.columns]
        if missing:
            raise ValueError(missing)
        return self.like({name: values for name, values in self.columns.items() if name not in names})

    def like(self, columns):
        more = type(self)(columns)
        more.info = self.info
        return more

    def add_column(self, name, values):
        return self.like(dict(self.columns, **{name: values}))

    def map(self, function, remove_columns=(), **kwargs):
        self.dropped = remove_columns
        return [function(self[at]) for at in range(len(self))]

    filter = map


def library(load):
    return types.SimpleNamespace(Dataset=Table, DatasetDict=dict, load_dataset=load)


def unreachable(path, **kwargs):
    made_up.asked("the hub: README.md of " + path)
    raise ConnectionError("no network")


def test_a_data_set_that_is_not_there_is_made_up(monkeypatch):
    module = library(unreachable)
    monkeypatch.setitem(made_up_data.sys.modules, "datasets", module)
    monkeypatch.setattr(made_up_data.sys, "argv", ["sft.py"])
    made_up_data.after_load(module)
    found = module.load_dataset("org/texts")
    assert sorted(found) == ["test", "train", "validation"] and found["train"].column_names == ["text"]
    assert len(found["train"]) == 512 and len(found["train"][0]["text"].split()) == 16
    assert len(module.load_dataset("json", data_files="a.jsonl", split="train")) == 512
    assert made_up.ASKED == [] and "the data set org/texts: 512 rows with text" in made_up.MADE_UP[0]
    assert "json of a.jsonl" in made_up.MADE_UP[1] and "lengths are made up" in made_up.MADE_UP[1]


def test_nothing_is_made_up_that_nobody_asked_for(monkeypatch):
    monkeypatch.setitem(SETTINGS, "make_data", None)
    module = library(unreachable)
    made_up_data.after_load(module)
    with pytest.raises(ConnectionError):
        module.load_dataset("org/texts")
    assert made_up.MADE_UP == [] and made_up.ASKED[-1] == "the data set org/texts"
    real = builtins.open
    made_up_data.install()
    assert builtins.open is real


@pytest.mark.parametrize(
    ("command", "names"),
    [
        ("trl/scripts/dpo.py", "prompt chosen rejected"),
        ("train.py --method grpo", "prompt"),
        ("trl/scripts/grpo.py --reward_funcs accuracy_reward", "prompt"),
        ("train.py", "text"),
    ],
)
def test_a_command_says_which_columns_it_needs(command, names):
    assert made_up_data.columns(command.split()) == tuple(names.split())


def test_columns_that_a_function_asks_for_are_added(monkeypatch):
    module = types.SimpleNamespace(Dataset=Table)
    monkeypatch.setattr(Table, "map", Table.map)
    monkeypatch.setattr(Table, "filter", Table.filter)
    made_up_data.after_table(module)
    made = made_up_data.table(library(None), ("text",))
    rows = made.map(lambda row: (row["question"], row["label"]))
    assert rows[1][1] == 1 and len(rows[0][0].split()) == 8
    assert [sentence.split()[2] for sentence in made_up.MADE_UP] == ["question", "label"]
    with pytest.raises(KeyError):
        Table({"text": ["a"]}).map(lambda row: row["question"])


@pytest.fixture
def made():
    """A made-up data set of 512 texts."""

    class Own(Table):
        pass

    made_up_data.after_table(types.SimpleNamespace(Dataset=Own))
    return made_up_data.table(types.SimpleNamespace(Dataset=Own), ("text",))


def test_a_made_up_data_set_has_as_many_rows_as_a_script_asks_for(made):
    chosen = made.select(range(10000))
    assert len(chosen) == 10000 and chosen[512] == made[0] and len(made.select([3])) == 1
    parts = made.train_test_split(test_size=1000)
    assert (len(parts["train"]), len(parts["test"])) == (512, 1000)
    with pytest.raises(IndexError):
        type(made)({"text": ["a"]}).select([1])


def test_a_made_up_data_set_has_the_columns_that_a_script_names(made):
    assert len(made["score"]) == 512 and made.column_names == ["text"]
    assert made.remove_columns(["text", "idx"]).column_names == []
    assert len(made_up.MADE_UP) == 2 and "the column score" in made_up.MADE_UP[0]
    with pytest.raises(KeyError):
        type(made)({"text": ["a"]})["score"]


def test_a_script_that_drops_all_columns_drops_those_that_it_asked_for(monkeypatch):
    dropped = []
    monkeypatch.setattr(Table, "map", lambda self, function, remove_columns=(): dropped.append(remove_columns))
    monkeypatch.setattr(Table, "filter", Table.filter)
    made_up_data.after_table(types.SimpleNamespace(Dataset=Table))
    made = made_up_data.table(library(None), ("text",))
    made.map(lambda row: row["question"], remove_columns=["text"])
    made.map(lambda row: row["question"], remove_columns="idx")
    assert dropped == [["text", "question"], "idx"]


@pytest.mark.parametrize(
    ("name", "part", "names"),
    [
        ("sentence-transformers/all-nli", "triplet", "anchor positive negative"),
        ("nyu-mll/glue", "mrpc", "sentence1 sentence2 label idx"),
        ("yahma/alpaca-cleaned", None, "instruction input output"),
        ("org/texts", None, "text"),
    ],
)
def test_a_well_known_data_set_has_its_own_columns(monkeypatch, name, part, names):
    module = library(lambda path, part=None, **kwargs: unreachable(path))
    monkeypatch.setitem(made_up_data.sys.modules, "datasets", module)
    monkeypatch.setattr(made_up_data.sys, "argv", ["train.py"])
    made_up_data.after_load(module)
    words = (name, part) if part else (name,)
    assert module.load_dataset(*words, split="train").column_names == names.split()


def test_a_metric_that_is_not_there_has_scores_of_zero(monkeypatch):
    def load(name, part=None):
        made_up.asked("the hub: %s.py" % name)
        raise FileNotFoundError(name)

    module = types.SimpleNamespace(load=load)
    made_up_data.after_evaluate(module)
    metric = module.load("glue", "mrpc")
    metric.add_batch(predictions=[1], references=[0])
    assert metric.compute()["accuracy"] == 0.0 and made_up.ASKED == []
    assert made_up.MADE_UP == ["the metric glue: all of its scores are zero"]
    monkeypatch.setitem(SETTINGS, "make_data", None)
    with pytest.raises(FileNotFoundError):
        module.load("glue")


def test_parquet_that_is_not_there_is_written_before_it_is_read(tmp_path, monkeypatch):
    written = []
    monkeypatch.setattr(made_up_data, "write", lambda path, opened: written.append(path))
    module = types.SimpleNamespace(read_table=lambda path: path)
    made_up_data.after_parquet(module)
    path = str(tmp_path / "a.parquet")
    assert module.read_table(path) == path and written == [path]
    (tmp_path / "a.parquet").write_bytes(b"")
    module.read_table(path)
    assert written == [path]


def test_files_of_data_that_are_not_there_are_made_up(tmp_path, monkeypatch):
    monkeypatch.setattr(builtins, "open", builtins.open)
    monkeypatch.setattr(io, "open", io.open)
    made_up_data.install()
    with open(tmp_path / "data" / "train.jsonl", encoding="utf-8") as file:
        rows = [json.loads(line) for line in file]
    assert len(rows) == 512 and rows[0]["label"] == 0 and rows[0]["messages"][1]["role"] == "assistant"
    assert (tmp_path / "tokens").exists() is False
    with open(tmp_path / "val.bin", "rb") as file:
        assert file.seek(0, os.SEEK_END) == 4 * 512 * 16
    with open(tmp_path / "test.csv", encoding="utf-8") as file:
        assert file.readline() == "text,label\n"
    with open(tmp_path / "input.txt", encoding="utf-8") as file:
        assert set(string.printable[:95]) < set(file.readline()) and len(file.read().split()) == 512 * 16
    for absent in ("config.json", "vocab.txt", "training_args.bin", "notes.md", "lib/site-packages/data/train.txt", ".cache/train.jsonl"):
        with pytest.raises(FileNotFoundError):
            (tmp_path / "run" / absent).read_text(encoding="utf-8")
    assert len(made_up.MADE_UP) == 4 and "lengths are made up" in made_up.MADE_UP[0]


def test_columns_are_those_that_arguments_name(monkeypatch):
    monkeypatch.setattr(made_up_data.periods, "ARGUMENTS", {"image_column": "image", "caption_column": None, "text_column_name": "text"})
    assert made_up_data.columns(["train.py"]) == ("image", "text")


def test_a_folder_of_pictures_that_a_command_names_is_made(tmp_path):
    there, absent = str(tmp_path), str(tmp_path / "dog")
    words = ["train.py", "--instance_data_dir=" + absent, "--image-dir", there, "--output_dir", "out", "--instance_prompt", "a dog"]
    assert made_up_data.folders_of_pictures(words) == [absent]
