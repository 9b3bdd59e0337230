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

# Most bytes of one file of weights.
MOST_OF_A_FILE = 5 << 30

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


def folder_of(name, revision=None, part=""):
    """Returns the folder of a model, or of a pipeline's part: in a folder, or in the hub's cache. A configuration that is not there is fetched by the
    user's own client if it may, else it is one that vramlab knows; weights never are. None if there is none."""
    name = str(name)
    if os.path.isdir(name):
        return os.path.join(name, part) if part else name
    try:
        import huggingface_hub

        file = part + "/config.json" if part else "config.json"
        found = huggingface_hub.try_to_load_from_cache(name, file, revision=revision)
        if not isinstance(found, str):
            found = huggingface_hub.hf_hub_download(name, file, revision=revision)
        return os.path.dirname(found)
    except Exception:
        return None


def stand_in(folder, tensors, name, stem="model"):
    """Makes a folder like this one, with weights of this layout in files of at most some gigabytes, as the hub has them."""
    import tempfile

    made = tempfile.mkdtemp(prefix="weights-", dir=os.path.dirname(SETTINGS["answers"]))
    for one in os.listdir(folder):
        if one not in INDICES:
            os.symlink(os.path.realpath(os.path.join(folder, one)), os.path.join(made, one))
    parts, size = in_parts(tensors), 0
    places = {}
    for number, part in enumerate(parts, 1):
        file = "%s.safetensors" % stem if len(parts) == 1 else "%s-%05d-of-%05d.safetensors" % (stem, number, len(parts))
        size += write_sparse(os.path.join(made, file), part)
        places.update((tensor[0], file) for tensor in part)
    if len(parts) > 1:
        with open(os.path.join(made, "%s.safetensors.index.json" % stem), "w", encoding="utf-8") as text:
            json.dump({"metadata": {"total_size": size}, "weight_map": places}, text)
    made_up("the weights of %s: %.2f GB in their places and types, without contents" % (name, size / 1e9))
    return made


def in_parts(tensors):
    """Cuts a list of tensors where a file would have more than `MOST_OF_A_FILE` bytes: a system without that much memory maps no larger one."""
    parts, size = [[]], 0
    for tensor in tensors:
        if parts[-1] and size + tensor[3] > MOST_OF_A_FILE:
            parts.append([])
            size = 0
        parts[-1].append(tensor)
        size += tensor[3]
    return parts


def layout(model, dtype):
    """Returns the tensors of a network's file: each once, in the order of their names, floating ones in the type of the file. A tied parameter has
    the name under which the network has it first, as in the hub's files: others are those that transformers knows as tied."""
    first = {id(p): name for name, p in model.named_parameters(remove_duplicate=True)}
    found = []
    for name, tensor in sorted(model.state_dict(keep_vars=True).items()):
        if first.get(id(tensor), name) != name:
            continue
        kind = dtype if tensor.is_floating_point() else tensor.dtype
        found.append((name, TYPE_NAMES[str(kind).replace("torch.", "")], tensor.shape, tensor.numel() * kind.itemsize))
    return found


def weights_for(torch, cls, name, kwargs):
    """Returns a folder with made-up weights for a model that has none on this machine, or None if it has."""
    import copy

    part = kwargs.get("subfolder") or ""
    folder = folder_of(name, kwargs.get("revision"), part)
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
    return stand_in(folder, layout(model, dtype), "%s/%s" % (name, part) if part else name)


def after_modeling(module):
    """`from_pretrained` of transformers finds weights, whatever this machine has."""
    import functools

    base = module.PreTrainedModel
    load = base.from_pretrained.__func__

    @functools.wraps(load)
    def from_pretrained(cls, name=None, *args, **kwargs):
        plain = isinstance(name, (str, os.PathLike)) and not any(kwargs.get(key) for key in ("state_dict", "gguf_file"))
        made = guarded(weights_for)(sys.modules["torch"], cls, name, kwargs) if plain else None
        if made is None:
            return load(cls, name, *args, **kwargs)
        for key in ("revision", "variant", "use_safetensors", "force_download", "subfolder"):
            kwargs.pop(key, None)
        loaded = load(cls, made, *args, **kwargs)
        for one in loaded if isinstance(loaded, tuple) else (loaded,):
            if hasattr(one, "config"):
                one.config._name_or_path = one.name_or_path = str(name)
        return loaded

    base.from_pretrained = classmethod(from_pretrained)


def part_for(torch, cls, name, kwargs):
    """Returns a folder with made-up weights for a network of diffusers that has none on this machine, or None if it has."""
    part = kwargs.get("subfolder") or ""
    folder = folder_of(name, kwargs.get("revision"), part)
    there = os.listdir(folder) if folder and os.path.isdir(folder) else []
    if "config.json" not in there or any(one.endswith((".safetensors", ".bin", ".index.json", ".gguf")) for one in there):
        return None
    config = cls.load_config(folder)
    said = config.pop("torch_dtype", None)
    dtype = getattr(torch, said) if said else torch.float32
    with torch.device("meta"):
        model = cls.from_config(config)
    return stand_in(folder, layout(model, dtype), "%s/%s" % (name, part) if part else name, "diffusion_pytorch_model")


def after_diffusers(module):
    """`from_pretrained` of diffusers' networks finds weights, whatever this machine has."""
    import functools

    base = module.ModelMixin
    load = base.from_pretrained.__func__

    @functools.wraps(load)
    def from_pretrained(cls, name=None, **kwargs):
        made = guarded(part_for)(sys.modules["torch"], cls, name, kwargs) if isinstance(name, (str, os.PathLike)) else None
        for key in ("revision", "variant", "use_safetensors", "force_download", "subfolder") if made else ():
            kwargs.pop(key, None)
        return load(cls, made or name, **kwargs)

    base.from_pretrained = classmethod(from_pretrained)


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


# The path of weights that open_clip would have downloaded.
OF_OPEN_CLIP = "made-up-by-vramlab"


def after_open_clip(module):
    """open_clip's pretrained weights that are not on this machine: the network keeps those that it was made with."""
    import functools

    def instead(download):
        @functools.wraps(download)
        def found(what, *args, **kwargs):
            wished = len(ASKED)
            try:
                return download(what, *args, **kwargs)
            except (OSError, RuntimeError):
                forget(wished)
                name = what.get("hf_hub") or what.get("url") if isinstance(what, dict) else what
                made_up("open_clip's weights of %s: those that it was made with stay" % str(name).rstrip("/"))
                return OF_OPEN_CLIP

        return found

    load = module.load_checkpoint

    @functools.wraps(load)
    def load_checkpoint(model, path, *args, **kwargs):
        return {} if path == OF_OPEN_CLIP else load(model, path, *args, **kwargs)

    module.download_pretrained, module.load_checkpoint = instead(module.download_pretrained), load_checkpoint


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
