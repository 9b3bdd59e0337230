"""What the user's word names: a file, a folder, a function, a name on the hub, or a class of a library."""

import importlib.util
import json
import os
import re

from .plan import Refused

# Libraries that build networks, in the order in which a name alone is looked up.
LIBRARIES = ("transformers", "torchvision", "timm", "diffusers")


class Source:
    """`kind`: `transformers`, `diffusers`, `timm`, `torchvision` or `function`. `config`: the configuration as data, or None; `path`: where it
    lies, for the program; `member`: a class, a model's name, or a function."""

    def __init__(self, kind, name, config=None, path=None, member=None):
        self.kind, self.name, self.config, self.path, self.member = kind, name, config, path, member


def is_installed(library):
    return importlib.util.find_spec(library) is not None


def need(library, name):
    if not is_installed(library):
        raise Refused("%s needs %s, which this Python does not have" % (name, library), "pip install %s" % library)


def find(word, config=None):
    """Returns the source that a word names. `config`: the configuration as data, if vramlab has it.

    Raises `Refused` for what names nothing, or what no installed library builds."""
    if config is not None:
        need("transformers", word)
        return Source("transformers", word, config)
    function = re.match(r"^(.+\.py):([A-Za-z_]\w*)$", word)
    if function:
        if not os.path.isfile(function.group(1)):
            raise Refused("%s: no such file" % function.group(1))
        return Source("function", word, path=os.path.abspath(function.group(1)), member=function.group(2))
    if os.path.isdir(word):
        return in_folder(word)
    if os.path.isfile(word):
        if word.endswith(".py"):
            raise Refused("name the function that makes the network, or rehearse the script",
                          "vramlab predict %s:make_model" % word)
        return of_config(word, word)
    library = re.match(r"^(%s):(.+)$" % "|".join(LIBRARIES), word)
    if library:
        need(library.group(1), word)
        return member_of(library.group(1), library.group(2), word)
    if re.match(r"^[\w.-]+/[\w.-]+$", word):
        return on_hub(word)
    return by_name(word)


def in_folder(folder):
    """A folder: a model's, or a pipeline's of diffusers, of which the part that is trained counts."""
    for part in ("", "transformer", "unet"):
        path = os.path.join(folder, part, "config.json")
        if os.path.isfile(path):
            return of_config(path, os.path.normpath(os.path.join(folder, part)))
    if os.path.isfile(os.path.join(folder, "adapter_config.json")):
        raise Refused("%s is an adapter: name the model that it belongs to" % folder)
    raise Refused("%s has no config.json" % folder)


def of_config(path, name):
    try:
        with open(path, encoding="utf-8") as file:
            config = json.load(file)
    except (OSError, ValueError) as error:
        raise Refused("%s: %s" % (path, error)) from None
    if not isinstance(config, dict):
        raise Refused("%s: is not a JSON object" % path)
    path = os.path.abspath(path)
    if "_class_name" in config:
        if "_diffusers_version" in config and not config["_class_name"].endswith("Pipeline"):
            need("diffusers", name)
            return Source("diffusers", name, config, path, config["_class_name"])
        raise Refused("%s describes a pipeline: name the config.json of its transformer or unet" % name)
    if "architecture" in config and "model_type" not in config:
        need("timm", name)
        return Source("timm", name, config, path, config["architecture"])
    if "model_type" in config or "architectures" in config:
        need("transformers", name)
        return Source("transformers", name, config, path)
    raise Refused("%s names no network: neither model_type nor architectures nor _class_name" % name)


def on_hub(name):
    """A name on the hub: its configuration from the local cache, or fetched by the user's own client. Weights are never fetched."""
    need("huggingface_hub", name)
    import huggingface_hub

    parts = ("config.json", "transformer/config.json", "unet/config.json")
    for part in parts:
        found = huggingface_hub.try_to_load_from_cache(name, part)
        if isinstance(found, str):
            return of_config(found, name)
    reason = None
    for part in parts:
        try:
            return of_config(huggingface_hub.hf_hub_download(name, part, etag_timeout=5), name)
        except Refused:
            raise
        except Exception as error:
            kind = type(error).__name__
            reason = reason or "%s: %s" % (kind, str(error).strip().split("\n")[0])
            if kind != "RemoteEntryNotFoundError" and kind != "EntryNotFoundError":
                break
    raise Refused("%s is not in the hub's cache of this machine, and its config.json could not be fetched (%s)" % (name, reason),
                  "vramlab predict config.json   # with the file saved from https://huggingface.co/%s/blob/main/config.json" % name)


def cut(source, layers):
    """Makes a configuration that of a network's first layers."""
    if source.config is None:
        raise Refused("%s has no configuration whose layers can be cut" % source.name)
    all_layers = source.config.get("num_hidden_layers")
    kept = {name: value[:layers] if isinstance(value, list) and len(value) == all_layers else value for name, value in source.config.items()}
    # Read from the data, not from the file.
    source.config, source.path = dict(kept, num_hidden_layers=layers), None


def member_of(library, member, word):
    if library == "transformers":
        import transformers

        if not hasattr(transformers, member):
            raise Refused("transformers %s has no class %s" % (transformers.__version__, member))
    return Source(library, word, member=member)


def by_name(word):
    """A name alone: classes begin with a capital letter, networks of torchvision and timm do not."""
    if word[:1].isupper():
        for library in ("transformers", "diffusers"):
            if is_installed(library):
                module = __import__(library)
                if hasattr(module, word):
                    return Source(library, word, member=word)
    else:
        if is_installed("torchvision"):
            import torchvision.models

            if word in torchvision.models.list_models():
                return Source("torchvision", word, member=word)
        if is_installed("timm"):
            import timm

            if timm.is_model(word):
                return Source("timm", word, member=word)
    there = [library for library in LIBRARIES if is_installed(library)]
    raise Refused("%s is no file, no name on the hub (OWNER/NAME), and no network of %s" % (word, ", ".join(there) or "an installed library"))
