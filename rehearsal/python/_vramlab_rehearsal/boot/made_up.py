"""What a script would have to download, made up: weights as files without contents, and tokenizers. Everything is listed in the answer."""

import json
import os
import sys

from . import endings
from .report import guarded, write_whole
from .settings import SETTINGS

# Files with weights that a loader takes from a folder.
WHOLE_WEIGHTS = ("model.safetensors", "pytorch_model.bin", "tf_model.h5", "flax_model.msgpack")
INDICES = ("model.safetensors.index.json", "pytorch_model.bin.index.json")

# Names of safetensors for PyTorch's types.
TYPE_NAMES = {
    "float64": "F64", "float32": "F32", "float16": "F16", "bfloat16": "BF16", "int64": "I64", "int32": "I32", "int16": "I16",
    "int8": "I8", "uint8": "U8", "bool": "BOOL", "float8_e4m3fn": "F8_E4M3", "float8_e5m2": "F8_E5M2",
}


# What stands for a download, and what the script wanted from a network and did not get.
MADE_UP, ASKED = [], []


def made_up(what):
    """Notes something that stands for a download."""
    told_once(MADE_UP, what, endings.MADE_UP)


def asked(what):
    """Notes what the script wanted from a network, and did not get."""
    told_once(ASKED, what, endings.ASKED)


def forget(count):
    """Keeps only so many of the script's wishes: the others were met by something that was made up."""
    if len(ASKED) > count:
        del ASKED[count:]
        guarded(write_whole)("%d%s" % (os.getpid(), endings.ASKED), json.dumps(ASKED))


def told_once(told, what, ending):
    """Adds a sentence to a list and writes the list, which is told even if nothing is allocated on a card."""
    if what not in told and len(told) < 100:
        told.append(what)
        guarded(write_whole)("%d%s" % (os.getpid(), ending), json.dumps(told))


def write_sparse(path, tensors):
    """Writes a safetensors file of this layout, whose contents are a hole: it takes hardly any space. `tensors`: name, type's name of
    safetensors, sizes, bytes. Returns the length of the contents."""
    import struct

    head: dict[str, dict[str, object]] = {"__metadata__": {"format": "pt"}}
    at = 0
    for name, kind, sizes, count in tensors:
        head[name] = {"dtype": kind, "shape": list(sizes), "data_offsets": [at, at + count]}
        at += count
    text = json.dumps(head).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        file.truncate(8 + len(text) + at)
    return at


def has_weights(folder):
    """True if a folder has all files of some set of weights."""
    there = set(os.listdir(folder))
    if there & set(WHOLE_WEIGHTS) or any(name.endswith(".gguf") for name in there):
        return True
    for index in INDICES:
        if index in there:
            with open(os.path.join(folder, index), encoding="utf-8") as file:
                if set(json.load(file)["weight_map"].values()) <= there:
                    return True
    return False


def folder_of(name, revision=None):
    """Returns the folder of a model: the folder itself, or that of the hub's cache. A configuration that is not there is fetched by the user's
    own client if it may; weights never are. None if there is none."""
    name = str(name)
    if os.path.isdir(name):
        return name
    try:
        import huggingface_hub

        found = huggingface_hub.try_to_load_from_cache(name, "config.json", revision=revision)
        if not isinstance(found, str):
            found = huggingface_hub.hf_hub_download(name, "config.json", revision=revision)
        return os.path.dirname(found)
    except Exception:
        return None


def stand_in(folder, tensors, name):
    """Makes a folder like this one, with weights of this layout."""
    import tempfile

    made = tempfile.mkdtemp(prefix="weights-", dir=os.path.dirname(SETTINGS["answers"]))
    for one in os.listdir(folder):
        if one not in INDICES:
            os.symlink(os.path.realpath(os.path.join(folder, one)), os.path.join(made, one))
    size = write_sparse(os.path.join(made, "model.safetensors"), tensors)
    made_up("the weights of %s: %.2f GB in their places and types, without contents" % (name, size / 1e9))
    return made


def layout(model, dtype):
    """Returns the tensors of a network's file: each once, in the order of their names, floating ones in the type of the file."""
    first = {id(p) for _, p in model.named_parameters(remove_duplicate=True)}
    seen, found = set(), []
    for name, tensor in sorted(model.state_dict(keep_vars=True).items()):
        if id(tensor) in seen:
            continue
        if id(tensor) in first:
            seen.add(id(tensor))
        kind = dtype if tensor.is_floating_point() else tensor.dtype
        found.append((name, TYPE_NAMES[str(kind).replace("torch.", "")], tensor.shape, tensor.numel() * kind.itemsize))
    return found


def weights_for(torch, cls, name, kwargs):
    """Returns a folder with made-up weights for a model that has none on this machine, or None if it has."""
    import copy

    folder = folder_of(name, kwargs.get("revision"))
    if folder is None or has_weights(folder) or not os.path.isfile(os.path.join(folder, "config.json")):
        return None
    config = kwargs.get("config")
    if config is None or isinstance(config, (str, os.PathLike)):
        config = cls.config_class.from_pretrained(config or folder)
    if getattr(config, "quantization_config", None):
        asked("the weights of %s, which are quantized: how their files are laid out is not made up" % name)
        return None
    dtype = getattr(config, "dtype", None) or getattr(config, "torch_dtype", None) or torch.float32
    dtype = getattr(torch, dtype.replace("torch.", "")) if isinstance(dtype, str) else dtype
    with torch.device("meta"):
        model = cls(copy.deepcopy(config))
    return stand_in(folder, layout(model, dtype), name)


def after_modeling(module):
    """`from_pretrained` of transformers finds weights, whatever this machine has."""
    import functools

    base = module.PreTrainedModel
    load = base.from_pretrained.__func__

    @functools.wraps(load)
    def from_pretrained(cls, name=None, *args, **kwargs):
        plain = isinstance(name, (str, os.PathLike)) and not any(kwargs.get(key) for key in ("state_dict", "gguf_file", "subfolder"))
        made = guarded(weights_for)(sys.modules["torch"], cls, name, kwargs) if plain else None
        if made is None:
            return load(cls, name, *args, **kwargs)
        for key in ("revision", "variant", "use_safetensors", "force_download"):
            kwargs.pop(key, None)
        loaded = load(cls, made, *args, **kwargs)
        for one in loaded if isinstance(loaded, tuple) else (loaded,):
            if hasattr(one, "config"):
                one.config._name_or_path = one.name_or_path = str(name)
        return loaded

    base.from_pretrained = classmethod(from_pretrained)


def tokenizer_for(name, error):
    """Makes a tokenizer of the model's vocabulary that gives one token for each word; raises the error if there is no such model."""
    folder = folder_of(name)
    if folder is None or not os.path.isfile(os.path.join(folder, "config.json")):
        raise error
    with open(os.path.join(folder, "config.json"), encoding="utf-8") as file:
        config = json.load(file)
    text = config.get("text_config") or config
    size, most = text.get("vocab_size") or 32000, text.get("max_position_embeddings")
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    special = {"unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>", "mask_token": "<mask>"}
    words = {token: number for number, token in enumerate(special.values())}
    words.update(("word%d" % number, number) for number in range(len(words), size))
    made = Tokenizer(models.WordLevel(words, unk_token="<unk>"))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    made_up("a tokenizer for %s, of %d tokens: one for each word, so lengths of texts are its own" % (name, size))
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=made, model_max_length=most or int(1e30), **special)
    tokenizer.chat_template = "{% for message in messages %}{{ message['role'] }} : {{ message['content'] }} </s> {% endfor %}"
    tokenizer.name_or_path = str(name)
    return tokenizer


def after_tokenizers(module):
    """Tokenizers of models that have none on this machine."""
    import functools

    base = getattr(module, "AutoTokenizer", None) or module.PreTrainedTokenizerBase
    load = base.from_pretrained.__func__

    @functools.wraps(load)
    def from_pretrained(cls, name=None, *args, **kwargs):
        try:
            return load(cls, name, *args, **kwargs)
        except (OSError, ValueError, TypeError, ImportError) as error:
            if not isinstance(name, (str, os.PathLike)) or has_tokenizer(name):
                raise
            return tokenizer_for(name, error)

    base.from_pretrained = classmethod(from_pretrained)


def has_tokenizer(name):
    folder = str(name) if os.path.isdir(name) else None
    files = os.listdir(folder) if folder else ()
    return any(one.startswith(("tokenizer.", "vocab.", "spiece.", "sentencepiece.", "tokenizer_config")) for one in files)


def after_timm(module):
    """timm's pretrained weights: the network keeps those that it was made with."""
    import functools

    load = getattr(module, "load_pretrained", None)
    if load is None:
        return

    @functools.wraps(load)
    def load_pretrained(model, *args, **kwargs):
        cfg = kwargs.get("pretrained_cfg") or getattr(model, "pretrained_cfg", None) or {}
        name = cfg.get("hf_hub_id") or cfg.get("url") or type(model).__name__
        made_up("timm's weights of %s: those that it was made with stay" % name)

    module.load_pretrained = load_pretrained


class MadeUpState(dict):
    """A state dict that stands for a download: any network takes it."""


def without_downloads(torch):
    """State dicts by URL: one that is not in PyTorch's cache is made up."""
    import functools

    hub = getattr(torch, "hub", None)
    load = getattr(hub, "load_state_dict_from_url", None)
    if load is None:
        return
    into = torch.nn.Module.load_state_dict

    @functools.wraps(load)
    def load_state_dict_from_url(url, model_dir=None, *args, **kwargs):
        name = kwargs.get("file_name") or os.path.basename(str(url).split("?")[0])
        folder = model_dir or os.path.join(hub.get_dir(), "checkpoints")
        if os.path.exists(os.path.join(folder, name)):
            return load(url, model_dir, *args, **kwargs)
        made_up("the weights of %s: those that the network was made with stay" % url)
        return MadeUpState()

    @functools.wraps(into)
    def load_state_dict(module, state_dict, *args, **kwargs):
        if isinstance(state_dict, MadeUpState) and not state_dict:
            return torch.nn.modules.module._IncompatibleKeys([], [])
        return into(module, state_dict, *args, **kwargs)

    hub.load_state_dict_from_url, torch.nn.Module.load_state_dict = load_state_dict_from_url, load_state_dict
    told_of(hub, "load", "GitHub")


def told_of(module, name, whom):
    """Wraps a function that asks a network: what it wanted is told if it fails."""
    import functools

    function = getattr(module, name, None)
    if function is None:
        return

    @functools.wraps(function)
    def told(what, *args, **kwargs):
        try:
            return function(what, *args, **kwargs)
        except (OSError, RuntimeError):
            asked("%s: %s" % (whom, getattr(what, "full_url", what)))
            raise

    setattr(module, name, told)


def after_urllib(module):
    told_of(module, "urlopen", "a server")


def is_reachable(endpoint):
    """True if a connection to an address can be made, within two seconds."""
    import socket
    import threading
    from urllib.parse import urlsplit

    parts, found = urlsplit(endpoint), []

    def connect():
        try:
            socket.create_connection((parts.hostname, parts.port or 443), timeout=2).close()
            found.append(True)
        except OSError:
            pass

    thread = threading.Thread(target=connect, daemon=True)
    thread.start()
    thread.join(2)
    return bool(found)


def after_hub_http(module):
    """Without a network the hub's client gives up at once, instead of trying again and again."""
    session, known = getattr(module, "get_session", None), []
    if session is None or not hasattr(module, "OfflineModeIsEnabled"):
        return

    def get_session(*args, **kwargs):
        import huggingface_hub

        constants = huggingface_hub.constants
        proxied = any(name.lower() in ("https_proxy", "all_proxy") for name in os.environ)
        if not known and not proxied and not constants.HF_HUB_OFFLINE:
            known.append(is_reachable(constants.ENDPOINT))
            constants.HF_HUB_OFFLINE = not known[0]
        if known and not known[0]:
            raise module.OfflineModeIsEnabled("vramlab rehearse: %s cannot be reached" % constants.ENDPOINT)
        return session(*args, **kwargs)

    module.get_session = get_session


def after_hub_download(module):
    """What a script wants from the hub and does not get is told."""
    import functools

    download = module.hf_hub_download

    @functools.wraps(download)
    def hf_hub_download(repo_id, filename, *args, **kwargs):
        try:
            return download(repo_id, filename, *args, **kwargs)
        except module.LocalEntryNotFoundError:
            if not kwargs.get("local_files_only"):
                asked("the hub: %s of %s" % (filename, repo_id))
            raise

    module.hf_hub_download = hf_hub_download


