"""Data that a script would have to download, or that is not there, made up: data sets by name, files and folders. Everything is listed in the answer.

Nothing is made up unless the launcher asks for it. Files lie where the script looks for them: the rehearsal keeps them from the real place."""

import json
import os
import sys

from . import made_up, periods
from .report import guarded
from .settings import SETTINGS

# Rows of a data set, at least and at most, and all their tokens, at most.
LEAST_ROWS, MOST_ROWS, MOST_TOKENS = 64, 512, 1 << 20
# What is told apart in the data of scripts that train on preferences, by words of the command.
COLUMNS = (
    # Before the others: their commands name functions of rewards.
    (("grpo", "rloo"), ("prompt",)),
    (("dpo", "orpo", "cpo", "simpo", "reward"), ("prompt", "chosen", "rejected")),
    (("kto",), ("prompt", "completion", "label")),
    (("ppo",), ("prompt",)),
)
# Columns of well-known data sets, by their names without the owner's, and by their parts (`load_dataset("nyu-mll/glue", "mrpc")`).
ALPACA, SCORED, SENTENCE = "instruction input output", "sentence1 sentence2 score", "sentence label idx"
KNOWN_COLUMNS = {
    "all-nli": {
        "triplet": "anchor positive negative",
        "pair": "anchor positive",
        "pair-class": "premise hypothesis label",
        "pair-score": SCORED,
    },
    "alpaca": {"": ALPACA + " text"},
    "alpaca-cleaned": {"": ALPACA},
    "gpt4-llm-cleaned": {"": ALPACA},
    "glue": {
        "cola": SENTENCE,
        "sst2": SENTENCE,
        "mnli": "premise hypothesis label idx",
        "qnli": "question sentence label idx",
        "qqp": "question1 question2 label idx",
        "": "sentence1 sentence2 label idx",
    },
    "gooaq": {"": "question answer"},
    "natural-questions": {"": "query answer"},
    "stsb": {"": SCORED},
}
# Keys of rows in files, whose readers ask for what they need only later.
OF_FILES = (
    "text", "prompt", "completion", "instruction", "input", "output", "question", "answer", "context", "title", "sentence1", "sentence2", "label",
    "messages",
)
# Endings of files with data, and words in the names of those whose ending says too little.
DATA = (".jsonl", ".ndjson", ".parquet")
PERHAPS_DATA = (".json", ".csv", ".tsv", ".txt", ".bin", ".npy")
WORDS_OF_DATA = ("train", "training", "valid", "validation", "val", "dev", "test", "eval", "data", "dataset", "corpus", "tokens", "input")
# Sides of pictures, their number in a class, and classes of a folder.
SIDE, PICTURES, CLASSES = 256, 32, 10
# The mark of a data set in its description.
MARK = "made up by vramlab"


def tokens():
    return SETTINGS.get("make_data")


def rows():
    return max(LEAST_ROWS, min(MOST_ROWS, MOST_TOKENS // max(tokens() or 1, 1)))


def text(number, length=None):
    """A text of so many words, each of which is a token or more."""
    words = ("time", "people", "way", "water", "day", "work", "place", "number", "part", "world", "house", "school")
    return " ".join(words[(number + at) % len(words)] for at in range(length or tokens() or 1))


def value(name, number, pictures=True):
    """What a row has under a name."""
    short = name.lower().replace("_", "")
    if any(word in short for word in ("label", "score", "target", "class")) or short in ("y", "id", "idx"):
        return number % 2
    if short in ("messages", "conversation"):
        return [{"role": "user", "content": text(number, 8)}, {"role": "assistant", "content": text(number)}]
    if short == "conversations":
        return [{"from": "human", "value": text(number, 8)}, {"from": "gpt", "value": text(number)}]
    if short in ("inputids", "tokens"):
        return [1 + (number + at) % 100 for at in range(tokens() or 1)]
    if any(part in short for part in ("image", "img", "picture")) and pictures:
        return picture(number)
    if short in ("prompt", "instruction", "question", "query", "title", "system", "input"):
        return text(number, 8)
    return text(number)


def picture(number):
    from PIL import Image

    return Image.new("RGB", (SIDE, SIDE), (number % 256, 64, 128))


def columns(words=None):
    """The columns that a script of this command needs at first: those that its arguments name, too."""
    said = " ".join(sys.argv if words is None else words).lower()
    found = next((names for marks, names in COLUMNS if any(mark in said for mark in marks)), ("text",))
    named = [said for flag, said in periods.ARGUMENTS.items() if str(flag).endswith(("_column", "_column_name", "_text_field")) and isinstance(said, str)]
    return tuple(dict.fromkeys((*named, *found)))


def table(datasets, names):
    made = datasets.Dataset.from_dict({name: [value(name, number) for number in range(rows())] for name in names})
    made.info.description = MARK
    return made


def known_columns(path, part):
    """The columns of a well-known data set, or none."""
    parts = KNOWN_COLUMNS.get(str(path).rpartition("/")[2].lower(), {})
    return tuple(parts.get(str(part or "").lower(), parts.get("", "")).split())


def data_set(datasets, what, split, streaming, known=()):
    """Makes a data set: of one split, or of the usual ones. `known`: its columns, if it is well known."""
    names = known or columns()
    made = table(datasets, names)
    made_up.made_up("the data set %s: %d rows with %s, texts of %d words, so lengths are made up" % (what, rows(), ", ".join(names), tokens()))
    if split is None:
        made = datasets.DatasetDict(dict.fromkeys(("train", "validation", "test"), made))
    elif isinstance(split, (list, tuple)):
        return [made for _ in split]
    if streaming:
        whole = isinstance(made, datasets.Dataset)
        return made.to_iterable_dataset() if whole else datasets.IterableDatasetDict({part: one.to_iterable_dataset() for part, one in made.items()})
    return made


def described(path, kwargs):
    """Names a data set as the script does."""
    files = kwargs.get("data_files") or kwargs.get("data_dir")
    return "%s of %s" % (path, files) if files else str(path)


def after_load(module):
    """`load_dataset` finds a data set, whatever this machine has."""
    import functools

    load = module.load_dataset

    @functools.wraps(load)
    def load_dataset(path, *args, **kwargs):
        asked = len(made_up.ASKED)
        try:
            return load(path, *args, **kwargs)
        except OSError:
            if not tokens():
                made_up.asked("the data set %s" % described(path, kwargs))
                raise
            made_up.forget(asked)
            known = known_columns(path, kwargs.get("name") or (args[0] if args else None))
            return data_set(sys.modules["datasets"], described(path, kwargs), kwargs.get("split"), kwargs.get("streaming"), known)

    module.load_dataset = load_dataset


def after_table(module):
    """A made-up data set gets the rows that a script asks for, and the columns that it names or that its own functions ask for."""
    import functools

    for name in ("map", "filter"):
        setattr(module.Dataset, name, with_missing_columns(getattr(module.Dataset, name), functools))
    for name, changed in (("select", with_rows), ("train_test_split", split_with_rows), ("__getitem__", with_column),
                          ("rename_column", with_column), ("remove_columns", with_column), ("select_columns", with_column)):
        if hasattr(module.Dataset, name):
            setattr(module.Dataset, name, before(getattr(module.Dataset, name), changed, functools))


def before(method, changed, functools):
    """Wraps a method of a data set: a made-up one is changed first."""

    @functools.wraps(method)
    def applied(self, *args, **kwargs):
        if tokens() and self.info.description == MARK:
            self = guarded(changed)(self, *args, **kwargs) or self
        return method(self, *args, **kwargs)

    return applied


def grown(data, count):
    """Returns a data set of so many rows at least: those that it has, again and again."""
    most = len(data)
    return data.select([at % most for at in range(count)]) if 0 < most < count else data


def with_rows(data, indices=(), *args, **kwargs):
    # What can be gone through only once is left to the data set.
    return grown(data, int(max(indices)) + 1) if hasattr(indices, "__len__") and len(indices) else data


def split_with_rows(data, test_size=None, train_size=None, **kwargs):
    wished = [size for size in (test_size, train_size) if isinstance(size, int)]
    # The other part has the rows that there are.
    return grown(data, sum(wished) + len(data)) if sum(wished) >= len(data) else data


def with_column(data, names=(), *args, **kwargs):
    return widened_by(data, [names] if isinstance(names, str) else names if isinstance(names, (list, tuple)) else kwargs.get("column_names", ()))


def widened_by(data, names):
    """Returns the data set with the columns of these names."""
    for name in names:
        if isinstance(name, str) and name not in data.column_names:
            data = data.add_column(name, [value(name, number) for number in range(len(data))])
            made_up.made_up("the column %s of a made-up data set, which the script asks for" % name)
    return data


def with_missing_columns(method, functools):
    @functools.wraps(method)
    def applied(self, function=None, *args, **kwargs):
        if function is not None and tokens() and self.info.description == MARK:
            whole, gone = set(self.column_names), kwargs.get("remove_columns")
            gone = [gone] if isinstance(gone, str) else list(gone or ())
            self = guarded(widened_by)(self, gone) or self
            self = guarded(widened)(self, function, kwargs) or self
            if gone and whole <= set(gone):
                # The script drops all columns that a real one has.
                kwargs["remove_columns"] = list(self.column_names)
        return method(self, function, *args, **kwargs)

    return applied


def widened(data, function, kwargs):
    """Returns the data set with the columns without which the function ends in a `KeyError`."""
    for _ in range(16):
        row = data[:2] if kwargs.get("batched") else data[0]
        more = ([0, 1] if kwargs.get("batched") else 0,) if kwargs.get("with_indices") else ()
        try:
            function(row, *more, **(kwargs.get("fn_kwargs") or {}))
            return data
        except KeyError as error:
            name = error.args[0] if error.args else None
            if not isinstance(name, str) or name in data.column_names:
                return data
            data = widened_by(data, [name])
        except Exception:
            return data
    return data


def is_data(path):
    """True if a path that is not there is one of data: by its ending, or by a word of its name or of its folder's. Files of libraries never are."""
    whole = os.path.abspath(path)
    hidden = any(part.startswith(".") for part in whole.split(os.sep))
    if hidden or "-packages" in whole or any(whole.startswith(place + os.sep) for place in (sys.prefix, sys.base_prefix)):
        return False
    stem, ending = os.path.splitext(os.path.basename(whole).lower())
    near = os.path.basename(os.path.dirname(whole)).lower() + " " + stem
    words = "".join(letter if letter.isalnum() else " " for letter in near).split()
    return ending in DATA or (ending in PERHAPS_DATA and bool(set(words) & set(WORDS_OF_DATA)) and not {"args", "config", "vocab"} & set(words))


def write(path, opened):
    """Writes a file of data. `opened`: the real `open`."""
    ending = os.path.splitext(path)[1].lower()
    os.makedirs(os.path.dirname(os.path.abspath(path)), exist_ok=True)
    rows_of_file = [{name: value(name, number, pictures=False) for name in OF_FILES} for number in range(rows())]
    if ending == ".parquet":
        import pyarrow
        from pyarrow import parquet

        parquet.write_table(pyarrow.Table.from_pylist(rows_of_file), path)
    elif ending == ".npy":
        import numpy

        numpy.save(path, numpy.ones(rows() * (tokens() or 1), dtype=numpy.int64))
    elif ending == ".bin":
        # Tokens of two or four bytes, all zero: a hole.
        with opened(path, "wb") as file:
            file.truncate(4 * rows() * (tokens() or 1))
    else:
        with opened(path, "w", encoding="utf-8") as file:
            if ending == ".json":
                json.dump(rows_of_file, file)
            elif ending in (".csv", ".tsv"):
                sign = "," if ending == ".csv" else "\t"
                file.write("text%slabel\n" % sign + "".join("%s%s%d\n" % (text(number), sign, number % 2) for number in range(rows())))
            elif ending == ".txt":
                # All characters of English texts first: the tokens of some scripts are characters.
                file.write("".join(map(chr, range(32, 127))) + "\n" + "".join(text(number) + "\n" for number in range(rows())))
            else:
                file.write("".join(json.dumps(row) + "\n" for row in rows_of_file))
    whole, length = rows() * (tokens() or 1), tokens() or 1
    kinds = {".npy": "%d tokens" % whole, ".bin": "%d bytes, all zero" % (4 * whole)}
    kind = kinds.get(ending, "%d rows, texts of %d words" % (rows(), length))
    made_up.made_up("the file %s: %s, so lengths are made up" % (path, kind))


def install():
    """Files of data that are opened and are not there are made up."""
    import builtins
    import io

    if not tokens():
        return
    real = builtins.open

    def opened(file, mode="r", *args, **kwargs):
        try:
            return real(file, mode, *args, **kwargs)
        except FileNotFoundError:
            path = os.fspath(file) if isinstance(file, (str, os.PathLike)) else ""
            if not isinstance(path, str) or set(mode) & set("wxa") or not is_data(path):
                raise
            guarded(write)(path, real)
            return real(file, mode, *args, **kwargs)

    builtins.open = io.open = opened
    for root in folders_of_pictures(sys.argv):
        guarded(pictures)(root)


def folders_of_pictures(words):
    """The folders of pictures that a command names and that are not there: values of flags such as `--instance_data_dir`."""
    found = []
    for at, word in enumerate(words):
        flag, equals, said = word.partition("=")
        said = said if equals else next(iter(words[at + 1 : at + 2]), "-")
        name = flag.lstrip("-").replace("-", "_").lower()
        is_folder = name.endswith(("_dir", "_root", "_folder")) and any(part in name for part in ("instance", "image", "picture"))
        if flag.startswith("--") and is_folder and said and not said.startswith("-") and not os.path.exists(said):
            found.append(said)
    return found


def pictures(root):
    """Makes a folder of pictures, with a text beside each."""
    os.makedirs(root, exist_ok=True)
    for number in range(PICTURES):
        picture(number).save(os.path.join(root, "%03d.png" % number))
    made_up.made_up("the folder %s: %d pictures of %d x %d" % (root, PICTURES, SIDE, SIDE))


def after_parquet(module):
    """Readers of parquet that open files without Python's `open`: `pandas.read_parquet`, `pyarrow.parquet.read_table`."""
    import functools

    def reader(read):
        @functools.wraps(read)
        def found(path, *args, **kwargs):
            if tokens() and isinstance(path, (str, os.PathLike)) and not os.path.exists(path) and is_data(os.fspath(path)):
                guarded(write)(os.fspath(path), open)
            return read(path, *args, **kwargs)

        return found

    for name in ("read_parquet", "read_table"):
        if hasattr(module, name):
            setattr(module, name, reader(getattr(module, name)))


def after_folder(module):
    """torchvision's folders of pictures: one that is not there is made up."""
    import functools

    make = module.DatasetFolder.__init__

    @functools.wraps(make)
    def __init__(self, root, *args, **kwargs):
        if tokens() and not os.path.isdir(root):
            guarded(folder)(root)
        make(self, root, *args, **kwargs)

    module.DatasetFolder.__init__ = __init__


def after_timm(module):
    """timm's folders of pictures: one that is not there is made up."""
    import functools

    make = module.create_dataset

    @functools.wraps(make)
    def create_dataset(name="", root=None, *args, **kwargs):
        if tokens() and not name and root and not os.path.exists(root):
            guarded(folder)(root)
        return make(name, root, *args, **kwargs)

    module.create_dataset = create_dataset


def folder(root):
    for number in range(CLASSES):
        place = os.path.join(root, "class%02d" % number)
        os.makedirs(place, exist_ok=True)
        for one in range(PICTURES):
            picture(number * PICTURES + one).save(os.path.join(place, "%03d.png" % one))
    made_up.made_up("the folder %s: %d classes of %d pictures of %d x %d" % (root, CLASSES, PICTURES, SIDE, SIDE))


class MadeUpMetric:
    """Stands for a metric of `evaluate`, which the hub has as a program."""

    def __init__(self, name):
        self.name = name

    def add(self, *args, **kwargs):
        pass

    add_batch = add

    def compute(self, *args, **kwargs):
        return MadeUpScores()


class MadeUpScores(dict):
    """The scores of a metric that computes nothing: each is zero."""

    def __missing__(self, name):
        return 0.0


def after_evaluate(module):
    """A metric of `evaluate` that is not on this machine computes nothing."""
    import functools

    load = module.load

    @functools.wraps(load)
    def found(path, *args, **kwargs):
        wished = len(made_up.ASKED)
        try:
            return load(path, *args, **kwargs)
        except OSError:
            if not tokens():
                made_up.asked("the metric %s" % path)
                raise
            made_up.forget(wished)
            made_up.made_up("the metric %s: all of its scores are zero" % path)
            return MadeUpMetric(path)

    module.load = found
