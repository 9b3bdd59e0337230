"""Inputs and loss of a class of transformers, from the arguments of its forward pass and its configuration."""

import inspect

from .plan import Input, Refused, first, shaped

# Tokens of an example unless the user says: of a network that generates text, and of others.
TOKENS, TOKENS_OF_ENCODERS = 2048, 512
# Samples of sound: ten seconds at 16 kHz.
SAMPLES = 160000

CONTRASTIVE = [
    "def embed(ids):",
    "    hidden = model(input_ids=ids).last_hidden_state",
    "    return torch.nn.functional.normalize(hidden.mean(dim=1), dim=-1)",
    'query, passage = embed(batch["input_ids"]), embed(batch["positive_ids"])',
    "outputs = query @ passage.T * 20.0",
    "loss = torch.nn.functional.cross_entropy(outputs, torch.arange(len(outputs), device=outputs.device))",
]
SQUARES = [
    "outputs = model(**batch)",
    "first = next(value for value in outputs.values() if isinstance(value, torch.Tensor) and value.requires_grad)",
    "loss = first.float().pow(2).mean()",
]


class Facts:
    """What is known of the class: the names of the arguments of its forward pass, its name, its configuration, and that of its text."""

    def __init__(self, cls, config):
        self.names = list(inspect.signature(cls.forward).parameters)
        self.class_name = cls.__name__
        self.config = config
        text = getattr(config, "get_text_config", None)
        self.text = text() if text else config
        self.vision = first(config, "vision_config")
        # True if a part that sees is left out of the configuration.
        self.is_blind = self.vision is None and hasattr(config, "vision_config")
        self.main = getattr(cls, "main_input_name", "input_ids")

    def takes(self, name):
        return name in self.names


def fill(plan, facts, options, image_tokens):
    """Adds inputs and loss to a plan. `image_tokens(inputs)` runs the network's own `get_image_features` without memory and returns how many
    tokens a batch of pictures takes, or None."""
    if facts.takes("past_values"):
        return series(plan, facts)
    if facts.takes("input_ids") and first(facts.text, "vocab_size"):
        text(plan, facts, options, image_tokens)
    elif facts.takes("input_features"):
        features(plan, facts)
    elif facts.takes("input_values"):
        sound(plan, facts)
    elif facts.takes("pixel_values"):
        pictures(plan, facts)
        if facts.takes("input_points"):
            plan.add("input_points", "torch.rand(BATCH, 1, 1, 2) * 1024", "batch x 1 x 1 x 2", "float32")
    else:
        raise Refused("the forward pass of %s takes %s: none of these inputs is known"
                      % (facts.class_name, ", ".join(name for name in facts.names if name != "self")),
                      "vramlab predict make_model.py:make_model   # a function that returns the network and its inputs")
    labels(plan, facts, options)
    return None


def length(facts, options, most=None):
    """Returns the tokens of an example, and who chose them."""
    text = facts.text
    most = most or first(text, "max_position_embeddings", "n_positions", "n_ctx", "max_sequence_length", "seq_length", "max_source_positions")
    if isinstance(most, int) and most > 2 and most % 128 == 2:
        # RoBERTa and those after it number positions from 2 on.
        most -= 2
    if options["sequence"] is not None:
        if isinstance(most, int) and 0 < most < options["sequence"] and not first(text, "rope_theta", "rope_scaling", "rope_parameters"):
            raise Refused("--sequence %d: %s has %d positions" % (options["sequence"], facts.class_name, most))
        return options["sequence"], "--sequence"
    generates = "Causal" in facts.class_name or "LMHead" in facts.class_name or facts.vision is not None
    usual = TOKENS if generates or (facts.class_name.endswith("ConditionalGeneration") and facts.takes("pixel_values")) else TOKENS_OF_ENCODERS
    return (min(usual, most) if isinstance(most, int) and most > 0 else usual), "default; --sequence N"


def text(plan, facts, options, image_tokens):
    vocabulary = facts.text.vocab_size
    most = None
    if "CLIP" in facts.class_name or "Siglip" in facts.class_name:
        most = first(facts.text, "max_position_embeddings")
    plan.tokens, plan.tokens_from = length(facts, options, most)
    contrast = facts.takes("return_loss")
    # A picture's tokens stand in the text.
    token = first(facts.config, "image_token_id", "image_token_index")
    counted = None
    if facts.takes("pixel_values") and not contrast and token is not None and facts.vision is not None:
        counted = with_picture(plan, facts, image_tokens)
    elif facts.takes("pixel_values") and facts.is_blind:
        plan.notes.append("its texts come without pictures: its configuration has no part that sees")
    elif facts.takes("pixel_values"):
        pictures(plan, facts)
    if counted:
        each = counted // options["batch"]
        if plan.tokens <= each:
            if options["sequence"] is not None:
                raise Refused("--sequence %d: a picture takes %d tokens of it; use more" % (options["sequence"], each))
            plan.tokens = each + 256
        limit = min(vocabulary, token) if token > vocabulary // 2 else vocabulary
        plan.head += ("; " if plan.head else "") + "a picture of %d tokens in each text" % each
        expression = ("torch.cat([torch.full((BATCH, %d), %d), torch.randint(%d, %d, (BATCH, SEQUENCE - %d))], dim=1)"
                      % (each, token, 0 if token >= limit else token + 1, limit, each))
    else:
        expression = "torch.randint(0, %d, (BATCH, SEQUENCE))" % special_free(facts, vocabulary)
    plan.inputs.insert(0, Input("input_ids", expression, "batch x tokens", "int64"))
    for name in ("token_type_ids", "mm_token_type_ids"):
        if counted and facts.takes(name):
            of_kind = "torch.cat([torch.ones(BATCH, %d, dtype=torch.long), torch.zeros(BATCH, SEQUENCE - %d, dtype=torch.long)], dim=1)"
            plan.add(name, of_kind % (each, each), "batch x tokens", "int64")


def special_free(facts, vocabulary):
    """Returns the number of tokens that stand for text: those of pictures and sound may come last, and want pictures."""
    special = [value for name, value in vars(facts.config).items()
               if name.endswith(("image_token_id", "audio_token_id", "video_token_id", "image_token_index", "vision_start_token_id"))
               and isinstance(value, int) and vocabulary // 2 < value < vocabulary]
    return min(special) if special else vocabulary


def side(facts):
    """Returns height and width of a picture: those of the configuration."""
    vision = facts.vision or facts.config
    size = first(vision, "image_size", "img_size") or first(facts.config, "image_size")
    backbone = first(facts.config, "backbone_config")
    size = size or (first(backbone, "image_size") if backbone else None)
    if isinstance(size, dict):
        size = (size.get("height"), size.get("width"))
    if isinstance(size, (list, tuple)):
        return int(size[0]), int(size[-1])
    if isinstance(size, int):
        return size, size
    if "Detection" in facts.class_name:
        return 640, 640
    return (512, 512) if "Segmentation" in facts.class_name else (224, 224)


def pictures(plan, facts):
    height, width = side(facts)
    if "DepthAnything" in facts.class_name:
        height, width = 518, 518
    channels = first(facts.vision or facts.config, "num_channels", "in_channels", "in_chans") or 3
    plan.add("pixel_values", "torch.rand(BATCH, %d, %d, %d)" % (channels, height, width), "batch x " + shaped(channels, height, width), "float32")


def with_picture(plan, facts, image_tokens):
    """Adds one picture for each text. Returns the number of tokens of all of them, or None if none is given."""
    vision = facts.vision
    patch, merge = first(vision, "patch_size") or 14, first(vision, "spatial_merge_size") or 1
    before = list(plan.inputs)
    out, wide = first(vision, "out_hidden_size"), first(facts.text, "hidden_size")
    if facts.takes("image_grid_thw") and out and wide and out != wide:
        plan.notes.append("its texts come without pictures: vision_config's out_hidden_size is %d, and its text's hidden_size %d" % (out, wide))
        return None
    if facts.takes("image_grid_thw"):
        # Patches of a picture in one row: a square of 1 024 merged ones, at most.
        rows = 32 if merge == 1 else 16 * merge
        row = (first(vision, "in_channels", "in_chans") or 3) * (first(vision, "temporal_patch_size") or 1) * patch * patch
        plan.add("pixel_values", "torch.rand(BATCH * %d, %d)" % (rows * rows, row), "(batch * %d) x %d" % (rows * rows, row), "float32")
        plan.add("image_grid_thw", "torch.tensor([[1, %d, %d]] * BATCH)" % (rows, rows), "batch x 3", "int64")
    elif facts.takes("image_sizes"):
        height, width = side(facts)
        height, width = min(height, 28 * patch), min(width, 28 * patch)
        plan.add("pixel_values", "torch.rand(BATCH, 3, %d, %d)" % (height, width), "batch x " + shaped(3, height, width), "float32")
        plan.add("image_sizes", "torch.tensor([[%d, %d]] * BATCH)" % (height, width), "batch x 2", "int64")
    else:
        pictures(plan, facts)
    counted = image_tokens(plan.inputs)
    if counted is None and plan.has("image_sizes"):
        # Only some of the parts that see ask for sizes.
        plan.inputs[:] = before
        pictures(plan, facts)
        counted = image_tokens(plan.inputs)
    if counted is None:
        plan.inputs[:] = before
        plan.notes.append("its texts come without pictures: how many tokens a picture takes could not be found out")
    return counted


def features(plan, facts):
    """Spectra of sound."""
    config = facts.config
    bins = first(config, "num_mel_bins", "feature_size", "input_feat_per_channel", "feature_projection_input_dim", "input_dim") or 80
    if facts.class_name.startswith("Whisper"):
        frames = 2 * config.max_source_positions
        plan.add("input_features", "torch.rand(BATCH, %d, %d)" % (bins, frames), "batch x " + shaped(bins, frames), "float32")
    else:
        plan.add("input_features", "torch.rand(BATCH, 1000, %d)" % bins, "batch x " + shaped(1000, bins), "float32")


def sound(plan, facts):
    config = facts.config
    if first(config, "max_length") and first(config, "num_mel_bins"):
        frames, bins = config.max_length, config.num_mel_bins
        plan.add("input_values", "torch.rand(BATCH, %d, %d)" % (frames, bins), "batch x " + shaped(frames, bins), "float32")
        return
    plan.add("input_values", "torch.rand(BATCH, %d)" % SAMPLES, "batch x %d (10 seconds at 16 kHz)" % SAMPLES, "float32")
    if facts.class_name.endswith("ForPreTraining"):
        frames = frames_of(config, SAMPLES)
        plan.add("mask_time_indices", "torch.rand(BATCH, %d) < 0.5" % frames, "batch x %d" % frames, "bool")
        negatives = first(config, "num_negatives") or 100
        plan.add("sampled_negative_indices", "torch.randint(0, BATCH * %d, (BATCH, %d, %d))" % (frames, frames, negatives),
                 "batch x " + shaped(frames, negatives), "int64")


def frames_of(config, samples):
    for kernel, stride in zip(config.conv_kernel, config.conv_stride):
        samples = (samples - kernel) // stride + 1
    return samples


def series(plan, facts):
    """Time series."""
    config = facts.config
    context = first(config, "context_length") or 512
    horizon = first(config, "horizon_length", "prediction_length") or 128
    plan.add("past_values", "torch.rand(BATCH, %d)" % context, "batch x %d" % context, "float32")
    if facts.takes("freq"):
        plan.add("freq", "torch.zeros(BATCH, dtype=torch.long)", "batch", "int64")
    plan.add("future_values", "torch.rand(BATCH, %d)" % horizon, "batch x %d" % horizon, "float32")
    plan.loss = "the class's own, of future_values"


def labels(plan, facts, options):
    """Adds what the class computes its loss from; where it computes none, says which one stands in its place."""
    name, config = facts.class_name, facts.config
    classes = first(config, "num_labels") or 2
    own = "the class's own, from labels"
    plan.loss = own
    if facts.takes("return_loss"):
        plan.add("return_loss", "True", "", "bool", nested=True)
        plan.loss = "the class's own: texts against pictures of the batch"
    elif facts.takes("start_positions") and not facts.takes("labels"):
        for one in ("start_positions", "end_positions"):
            plan.add(one, "torch.randint(0, SEQUENCE, (BATCH,))", "batch", "int64")
        plan.loss = "the class's own: where an answer starts and ends"
    elif not facts.takes("labels") or "DepthEstimation" in name:
        without_labels(plan, facts)
    elif name.endswith("ForObjectDetection") or (name.endswith("ForSegmentation") and facts.takes("pixel_mask")):
        boxes = ('[{"class_labels": torch.randint(0, %d, (8,)), "boxes": torch.rand(8, 4) * 0.25 + 0.25} for _ in range(BATCH)]' % classes)
        plan.add("labels", boxes, "8 boxes in each picture", "", nested=True)
    elif "SemanticSegmentation" in name:
        height, width = side(facts)
        plan.add("labels", "torch.randint(0, %d, (BATCH, %d, %d))" % (classes, height, width), "batch x " + shaped(height, width), "int64")
    elif name.endswith("ForCTC"):
        plan.add("labels", "torch.randint(1, %d, (BATCH, 100))" % config.vocab_size, "batch x 100", "int64")
    elif name.endswith("ForMultipleChoice"):
        choices = options["choices"] or 4
        for one in plan.inputs:
            one.expression = one.expression.replace("(BATCH, SEQUENCE)", "(BATCH, %d, SEQUENCE)" % choices)
            one.shape = one.shape.replace("batch x tokens", "batch x %d x tokens" % choices)
        plan.add("labels", "torch.randint(0, %d, (BATCH,))" % choices, "batch", "int64")
    elif name.endswith(("Classification", "ForImageClassificationWithTeacher")) and "Token" not in name:
        plan.add("labels", "torch.randint(0, %d, (BATCH,))" % classes, "batch", "int64")
    elif name.endswith("ForTokenClassification"):
        plan.add("labels", "torch.randint(0, %d, (BATCH, SEQUENCE))" % classes, "batch x tokens", "int64")
    else:
        of_text(plan, facts)


def of_text(plan, facts):
    """Labels that are tokens."""
    name, config = facts.class_name, facts.config
    vocabulary = facts.text.vocab_size
    if plan.tokens is None:
        # A decoder beside sound or pictures.
        most = first(config, "max_target_positions", "max_length") or first(facts.text, "max_position_embeddings")
        plan.tokens = min(most, TOKENS_OF_ENCODERS) if isinstance(most, int) and most > 0 else TOKENS_OF_ENCODERS
        plan.tokens_from = "default of the decoder"
    if name.startswith("Electra") and name.endswith("ForPreTraining"):
        vocabulary = 2
    plan.add("labels", "torch.randint(0, %d, (BATCH, SEQUENCE))" % vocabulary, "batch x tokens", "int64")
    if facts.takes("next_sentence_label"):
        plan.add("next_sentence_label", "torch.randint(0, 2, (BATCH,))", "batch", "int64")
    if facts.takes("sentence_order_label"):
        plan.add("sentence_order_label", "torch.randint(0, 2, (BATCH,))", "batch", "int64")


def without_labels(plan, facts):
    if facts.main == "input_ids" and facts.takes("input_ids") and not facts.takes("decoder_input_ids"):
        plan.inputs = [one for one in plan.inputs if one.name == "input_ids"]
        plan.add("positive_ids", plan.inputs[0].expression, "batch x tokens", "int64")
        plan.forward = list(CONTRASTIVE)
        plan.loss = "texts against texts of the batch (contrastive): the class has none, and this is how embedders are trained"
        return
    if facts.takes("decoder_input_ids") and plan.tokens is not None:
        plan.add("decoder_input_ids", "torch.randint(0, %d, (BATCH, SEQUENCE))" % facts.text.vocab_size, "batch x tokens", "int64")
    plan.forward = list(SQUARES)
    plan.loss = "mean of the squares of its first output: the class computes none"
