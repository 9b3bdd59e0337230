"""Which class of transformers is trained: the one that the configuration names, unless that class computes no loss and another of its family does."""

from .plan import Refused

# Heads, in the words of `--head`, by the automatic class that knows them.
HEADS = {
    "causal-lm": "MODEL_FOR_CAUSAL_LM_MAPPING", "masked-lm": "MODEL_FOR_MASKED_LM_MAPPING",
    "conditional-generation": "MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING",
    "sequence-classification": "MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING",
    "token-classification": "MODEL_FOR_TOKEN_CLASSIFICATION_MAPPING", "multiple-choice": "MODEL_FOR_MULTIPLE_CHOICE_MAPPING",
    "question-answering": "MODEL_FOR_QUESTION_ANSWERING_MAPPING",
    "next-sentence-prediction": "MODEL_FOR_NEXT_SENTENCE_PREDICTION_MAPPING",
    "image-classification": "MODEL_FOR_IMAGE_CLASSIFICATION_MAPPING", "base-model": "MODEL_MAPPING",
}

# Automatic classes that are asked if a configuration names no class, or one without a loss; the first that knows it.
WITHOUT_A_NAME = (
    "MODEL_FOR_CAUSAL_LM_MAPPING", "MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING", "MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING",
    "MODEL_FOR_SPEECH_SEQ_2_SEQ_MAPPING", "MODEL_FOR_CTC_MAPPING", "MODEL_FOR_OBJECT_DETECTION_MAPPING",
    "MODEL_FOR_SEMANTIC_SEGMENTATION_MAPPING", "MODEL_FOR_IMAGE_CLASSIFICATION_MAPPING", "MODEL_FOR_MASKED_LM_MAPPING", "MODEL_MAPPING",
)
OF_OTHERS = (
    "MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING", "MODEL_FOR_IMAGE_CLASSIFICATION_MAPPING", "MODEL_FOR_CTC_MAPPING", "MODEL_FOR_AUDIO_CLASSIFICATION_MAPPING")


# Classes whose forward pass fails in some releases: the attribute that it asks for and that nothing has, and the class of their text.
FAILING = {"Llama4ForConditionalGeneration": ("outputs.image_outputs", "Llama4ForCausalLM")}


def known_to(transformers, mapping, config):
    """Returns the class that an automatic class builds for a configuration, or None."""
    import transformers.models.auto.modeling_auto as auto

    table = getattr(auto, mapping, None)
    try:
        found = table[type(config)] if table is not None and type(config) in table else None
    except (KeyError, ImportError):
        return None
    return found[0] if isinstance(found, tuple) else found


def configuration(transformers, source):
    """Makes the configuration object. Code of a repository is never run."""
    values = dict(source.config)
    values.pop("quantization_config", None)
    kind = values.get("model_type")
    if not kind:
        kind = kind_of(transformers, values.get("architectures") or [], source.name)
    try:
        made = transformers.AutoConfig.for_model(kind)
    except (KeyError, ValueError):
        tip = "pip install -U transformers"
        if values.get("auto_map"):
            raise Refused("transformers %s has no model_type %r: its class is code of the repository, which is not run by itself"
                          % (transformers.__version__, kind), "vramlab predict make_model.py:make_model   # a function that makes it") from None
        raise Refused("transformers %s has no model_type %r" % (transformers.__version__, kind), tip) from None
    return type(made).from_dict(values)


def kind_of(transformers, architectures, name):
    for class_name in architectures:
        cls = getattr(transformers, class_name, None)
        if cls is not None and getattr(cls, "config_class", None) is not None:
            return cls.config_class.model_type
    raise Refused("%s: no model_type, and transformers %s does not have %s"
                  % (name, transformers.__version__, ", ".join(architectures) or "a class for it"))


def has_loss(cls):
    """True if the class computes a loss from labels of some kind."""
    import inspect

    names = inspect.signature(cls.forward).parameters
    # A base model of sound takes masks of time, too, and computes nothing from them.
    if "mask_time_indices" in names and cls.__name__.endswith("ForPreTraining"):
        return True
    return any(name in names for name in ("labels", "return_loss", "start_positions", "future_values", "next_sentence_label", "mask_labels"))


def text_alone(transformers, cls):
    """Returns the class of the text alone, if the forward pass of the whole fails in this release, and a sentence; otherwise None."""
    import inspect

    absent, other = FAILING.get(cls.__name__, (None, None))
    try:
        fails = absent is not None and absent in inspect.getsource(cls.forward)
    except (OSError, TypeError):
        fails = False
    if not fails or not hasattr(transformers, other):
        return None
    return getattr(transformers, other), "%s of this release asks for %s, which no output has: %s is trained, on texts" % (cls.__name__, absent, other)


def choose(transformers, config, named, head):
    """Returns the class to train, and a sentence on why it is not the one that the file names (or an empty one)."""
    if head:
        if head not in HEADS:
            raise Refused("--head %s: only %s" % (head, ", ".join(HEADS)))
        found = known_to(transformers, HEADS[head], config)
        if found is None:
            raise Refused("transformers %s has no %s for model_type %s" % (transformers.__version__, head, config.model_type))
        return found, ""
    own = next((getattr(transformers, name) for name in named if hasattr(transformers, name)), None)
    if own is None:
        found = next(filter(None, (known_to(transformers, mapping, config) for mapping in WITHOUT_A_NAME)), None)
        if found is None:
            raise Refused("transformers %s has no class for model_type %s" % (transformers.__version__, config.model_type))
        absent = "transformers %s does not have %s" % (transformers.__version__, ", ".join(named)) if named else "the file names no class"
        return found, "%s: %s is trained" % (absent, found.__name__)
    is_decoded = getattr(config, "is_encoder_decoder", False)
    if has_loss(own) or (own.main_input_name == "input_ids" and not is_decoded):
        return own, ""
    for mapping in OF_OTHERS:
        found = known_to(transformers, mapping, config)
        if found is not None:
            return found, "%s computes no loss: %s is trained" % (own.__name__, found.__name__)
    return own, ""
