"""The hub without a network: its client gives up at once, and repositories whose configurations vramlab knows are folders of the run."""

import json
import os

from . import made_up
from .report import guarded
from .settings import SETTINGS

# Folders of repositories that were made, by name in lower case; None for one that vramlab does not know.
MADE = {}
# Folders with weights too, by those without.
WHOLE = {}
# What Unsloth adds to the name of a model in four bits.
QUANTIZED = "-bnb-4bit"


def known(name):
    """Returns a folder with the configurations of a repository that vramlab knows, or None."""
    key = str(name).lower()
    if key not in MADE:
        MADE[key] = guarded(make)(str(name), key)
    return MADE[key]


def make(name, key):
    import tempfile

    with open(SETTINGS["known"], encoding="utf-8") as file:
        all_files = json.load(file)
    # The oldest names have no owner.
    files = all_files.get(key) or next((files for other, files in all_files.items() if other.partition("/")[2] == key), None)
    whole = key if files else whole_of(key)
    files = files or all_files.get(whole)
    if not files:
        return None
    folder = tempfile.mkdtemp(prefix="known-", dir=os.path.dirname(SETTINGS["answers"]))
    for path, text in files.items():
        place = os.path.join(folder, path)
        os.makedirs(os.path.dirname(place), exist_ok=True)
        with open(place, "w", encoding="utf-8") as file:
            json.dump(text, file)
    made_up.made_up("the configuration of %s, as vramlab knows it%s: %s" % (name, "" if whole == key else " of " + whole, ", ".join(sorted(files))))
    return folder


def whole_of(key):
    """The name of the model of whose weights a repository has those in four bits, or None. The script quantizes those of the model instead, to the
    same sizes."""
    return key[: -len(QUANTIZED)] if key.endswith(QUANTIZED) else None


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


def after_http(module):
    """Without a network the hub's client gives up at once, instead of trying again and again."""
    session, reached = getattr(module, "get_session", None), []
    if session is None or not hasattr(module, "OfflineModeIsEnabled"):
        return

    def get_session(*args, **kwargs):
        import huggingface_hub

        constants = huggingface_hub.constants
        proxied = any(name.lower() in ("https_proxy", "all_proxy") for name in os.environ)
        if not reached and not proxied and not constants.HF_HUB_OFFLINE:
            reached.append(is_reachable(constants.ENDPOINT))
            constants.HF_HUB_OFFLINE = not reached[0]
        if reached and not reached[0]:
            raise module.OfflineModeIsEnabled("vramlab rehearse: %s cannot be reached" % constants.ENDPOINT)
        return session(*args, **kwargs)

    module.get_session = get_session


def after_download(module):
    """A file that a script wants from the hub and does not get is one that vramlab knows, or its absence is told."""
    import functools

    download = module.hf_hub_download

    @functools.wraps(download)
    def hf_hub_download(repo_id, filename, *args, **kwargs):
        try:
            return download(repo_id, filename, *args, **kwargs)
        except module.LocalEntryNotFoundError:
            folder = known(repo_id) if kwargs.get("repo_type") in (None, "model") else None
            if folder is None:
                if not kwargs.get("local_files_only"):
                    made_up.asked("the hub: %s of %s" % (filename, repo_id))
                raise
            path = os.path.join(folder, kwargs.get("subfolder") or "", filename)
            if os.path.isfile(path):
                return path
            import huggingface_hub.errors

            raise huggingface_hub.errors.EntryNotFoundError("vramlab knows no %s of %s" % (filename, repo_id)) from None

    look = module.try_to_load_from_cache

    @functools.wraps(look)
    def try_to_load_from_cache(repo_id, filename, *args, **kwargs):
        found = look(repo_id, filename, *args, **kwargs)
        # transformers looks into the cache once more for what it has downloaded.
        folder = MADE.get(str(repo_id).lower()) if not isinstance(found, str) else None
        path = os.path.join(folder, filename) if folder else ""
        return path if os.path.isfile(path) else found

    module.hf_hub_download, module.try_to_load_from_cache = hf_hub_download, try_to_load_from_cache


def after_snapshot(module):
    """A whole repository that is not here is the folder of its configurations, if vramlab knows them."""
    import functools

    download = module.snapshot_download

    @functools.wraps(download)
    def snapshot_download(repo_id, *args, **kwargs):
        try:
            return download(repo_id, *args, **kwargs)
        except module.LocalEntryNotFoundError:
            kind = kwargs.get("repo_type")
            folder = known(repo_id) if kind in (None, "model") else guarded(of_nothing)() if kind == "dataset" and wants_nothing(kwargs) else None
            if folder is None:
                made_up.asked("the hub: all files of %s" % repo_id)
                raise
            return guarded(with_weights)(str(repo_id), folder) or folder if wants_weights(kwargs) else folder

    module.snapshot_download = snapshot_download


def wants_nothing(kwargs):
    """True if a script only asks whether there is such a data set, which is made up."""
    ignored = kwargs.get("ignore_patterns")
    return bool(SETTINGS.get("make_data")) and "*" in ([ignored] if isinstance(ignored, str) else ignored or ())


def wants_weights(kwargs):
    """True if a script downloads a repository with its weights."""
    from fnmatch import fnmatch

    def matched(patterns):
        return any(fnmatch("model.safetensors", pattern) for pattern in ([patterns] if isinstance(patterns, str) else patterns))

    allowed, ignored = kwargs.get("allow_patterns"), kwargs.get("ignore_patterns")
    return (allowed is None or matched(allowed)) and not matched(ignored or ())


def with_weights(name, folder):
    """Returns a folder like this one with weights of the network of transformers that its configuration names, or None."""
    path = os.path.join(folder, "config.json")
    if folder not in WHOLE and os.path.isfile(path):
        with open(path, encoding="utf-8") as file:
            kind = (json.load(file).get("architectures") or [""])[0]
        try:
            import torch
            import transformers
        except ImportError:
            return None
        network = getattr(transformers, kind, None)
        WHOLE[folder] = made_up.weights_for(torch, network, name, {}) if network else None
    return WHOLE.get(folder)


def of_nothing():
    import tempfile

    return tempfile.mkdtemp(prefix="nothing-", dir=os.path.dirname(SETTINGS["answers"]))


def after_pipelines(module):
    """A pipeline of diffusers whose files are not here has the parts that vramlab knows."""
    import functools

    download = module.DiffusionPipeline.download.__func__

    @functools.wraps(download)
    def found(cls, name, **kwargs):
        try:
            return download(cls, name, **kwargs)
        except (OSError, ValueError):
            folder = known(name)
            if folder is None:
                raise
            return folder

    module.DiffusionPipeline.download = classmethod(found)
