"""Tokenizers and processors of models that have none on this machine, made up of what their configurations say."""

import json
import os

from . import made_up
from .report import guarded

# Marks of chats that scripts name as the end of a text.
MARKS = ("<|im_start|>", "<|im_end|>", "<|endoftext|>", "<|eot_id|>", "<|end_of_text|>", "<end_of_turn>", "<|end|>", "<|return|>")


def config_of(name, part=""):
    """Returns the configuration of a model as data, or None. A pipeline's tokenizer has that of the text encoder beside it."""
    folder = made_up.folder_of(name, part=part.replace("tokenizer", "text_encoder"))
    path = os.path.join(folder, "config.json") if folder else ""
    if not os.path.isfile(path):
        return None
    with open(path, encoding="utf-8") as file:
        return json.load(file)


def tokenizer_for(name, error, part=""):
    """Makes a tokenizer of the model's vocabulary that gives one token for each word; raises the error if there is no such model."""
    config = config_of(name, part)
    if config is None:
        raise error
    text = config.get("text_config") or config
    size, most = text.get("vocab_size") or 32000, text.get("max_position_embeddings")
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    special = {"unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>", "mask_token": "<mask>"}
    words = {token: number for number, token in enumerate(special.values())}
    words.update((mark, number) for number, mark in enumerate(MARKS, len(words)) if number < size)
    words.update(("word%d" % number, number) for number in range(len(words), size))
    made = Tokenizer(models.WordLevel(words, unk_token="<unk>"))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    made_up.made_up("a tokenizer for %s, of %d tokens: one for each word, so lengths of texts are its own" % (name, size))
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
        part = kwargs.get("subfolder") or ""
        try:
            loaded = load(cls, name, *args, **kwargs)
        except (OSError, ValueError, TypeError, ImportError) as error:
            if not isinstance(name, (str, os.PathLike)) or has_tokenizer(name):
                raise
            return tokenizer_for(name, error, part)
        # transformers 5 makes an empty tokenizer of a model that has no files of one.
        return guarded(of_nothing)(loaded, name, part) or loaded

    base.from_pretrained = classmethod(from_pretrained)


def of_nothing(loaded, name, part):
    """Returns a tokenizer of the model's vocabulary in place of one that has hardly any words, or None."""
    if not isinstance(name, (str, os.PathLike)) or len(loaded) > 300 or has_tokenizer(name):
        return None
    config = config_of(name, part)
    size = (config and (config.get("text_config") or config).get("vocab_size")) or 0
    return tokenizer_for(name, ValueError(name), part) if size > 10 * len(loaded) else None


def has_tokenizer(name):
    folder = str(name) if os.path.isdir(name) else None
    files = os.listdir(folder) if folder else ()
    return any(one.startswith(("tokenizer.", "vocab.", "spiece.", "sentencepiece.", "tokenizer_config")) for one in files)


def side_of(config):
    """Returns the side of the pictures that a configuration is for, or None."""
    seen = config.get("vision_config") or config
    side = seen.get("image_size")
    return side if isinstance(side, int) else None


def part_for(name, kind):
    """Makes what prepares pictures (`image_processing_auto`) or sounds (`feature_extraction_auto`) for a model, by its class's own settings; None if
    there is no such model or class."""
    import importlib

    import transformers

    config = config_of(name)
    if config is None:
        return None
    module = importlib.import_module("transformers.models.auto." + kind)
    mapping = getattr(module, "IMAGE_PROCESSOR_MAPPING", None) or getattr(module, "FEATURE_EXTRACTOR_MAPPING", None)
    found = mapping[type(transformers.AutoConfig.for_model(config["model_type"]))]
    if isinstance(found, dict):
        found = found.get("torchvision") or found.get("pil")
    elif isinstance(found, tuple):
        found = next((one for one in reversed(found) if one is not None), None)
    if found is None:
        return None
    own = {"feature_size": config["num_mel_bins"]} if kind.startswith("feature") and "num_mel_bins" in config else {}
    made, side = found(**own), side_of(config)
    if side and getattr(made, "size", None):
        keys = dict(made.size)
        made.size = type(made.size)(**dict.fromkeys(keys, side)) if set(keys) <= {"height", "width", "shortest_edge"} else made.size
    if side and getattr(made, "crop_size", None):
        made.crop_size = type(made.crop_size)(height=side, width=side)
    made_up.made_up("%s for %s, with the class's own settings" % (found.__name__, name))
    return made


def after_parts(module):
    """Processors of pictures and sounds of models that have none on this machine."""
    import functools

    kind = module.__name__.rpartition(".")[2]
    base = module.AutoImageProcessor if kind == "image_processing_auto" else module.AutoFeatureExtractor
    load = base.from_pretrained.__func__

    @functools.wraps(load)
    def from_pretrained(cls, name=None, *args, **kwargs):
        try:
            return load(cls, name, *args, **kwargs)
        except (OSError, ValueError, TypeError, ImportError):
            made = guarded(part_for)(name, kind) if isinstance(name, (str, os.PathLike)) else None
            if made is None:
                raise
            return made

    base.from_pretrained = classmethod(from_pretrained)


def processor_for(name):
    """Makes a processor of a model of its parts; None if there is no such model or class."""
    import transformers
    from transformers.models.auto.processing_auto import PROCESSOR_MAPPING

    config = config_of(name)
    if config is None:
        return None
    found = PROCESSOR_MAPPING[type(transformers.AutoConfig.for_model(config["model_type"]))]
    makers = {"tokenizer": transformers.AutoTokenizer, "image_processor": transformers.AutoImageProcessor,
              "feature_extractor": transformers.AutoFeatureExtractor}
    parts = {part: makers[part].from_pretrained(name) for part in found.get_attributes() if part in makers}
    return found(**parts)


def after_processors(module):
    """Processors of models that have none on this machine."""
    import functools

    load = module.AutoProcessor.from_pretrained.__func__

    @functools.wraps(load)
    def from_pretrained(cls, name=None, *args, **kwargs):
        try:
            return load(cls, name, *args, **kwargs)
        except (OSError, ValueError, TypeError, ImportError):
            made = guarded(processor_for)(name) if isinstance(name, (str, os.PathLike)) else None
            if made is None:
                raise
            return made

    module.AutoProcessor.from_pretrained = classmethod(from_pretrained)
