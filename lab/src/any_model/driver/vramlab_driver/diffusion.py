"""Networks of diffusers: one step of training as the library's own examples make it, on latents that are given."""

import inspect

from . import library
from .plan import Plan, Refused, first, precision, shaped

# Tokens of a prompt, by what the class takes.
PROMPT = 77
LONG_PROMPT = 512
FRAMES = 81


def plan_of(source, options):
    """Returns the plan, and the network, built without weights."""
    import diffusers

    cls = getattr(diffusers, source.member, None)
    if cls is None or not hasattr(cls, "from_config"):
        raise Refused("diffusers %s has no network %s" % (diffusers.__version__, source.member), "pip install -U diffusers")
    plan = Plan(source.name, "diffusers " + diffusers.__version__, cls.__name__)
    plan.imports = ["from diffusers import %s" % cls.__name__]
    if options["precision"]:
        plan.dtype, plan.dtype_from = precision(options["precision"])[0], "--precision"
    else:
        plan.dtype_from = "default; --precision TYPE"
    made = "%s()" % cls.__name__ if source.config is None else "%s.from_config(%s.load_config(%r))" % (cls.__name__, cls.__name__, source.path)
    plan.build = ["return %s.to(torch.%s)" % (made, plan.dtype)]
    model, how = library.built(plan)
    library.parameters_of(plan, model, how)
    names = list(inspect.signature(cls.forward).parameters)
    fill(plan, names, dict(model.config), options)
    library.as_the_network(plan)
    return plan, model


def fill(plan, names, config, options):
    """Adds inputs and loss, from the arguments of the forward pass and the configuration."""
    if "sample" in names and "timestep" not in names:
        return autoencoder(plan, config)
    if "sample" in names:
        unet(plan, names, config)
    elif "hidden_states" in names:
        transformer(plan, names, config)
    else:
        raise Refused("the forward pass of %s takes %s: none of these inputs is known" % (plan.class_name, ", ".join(names[1:])))
    plan.forward = ['target = batch.pop("target")', "outputs = model(**batch, return_dict=False)[0]",
                    "loss = torch.nn.functional.mse_loss(outputs.float(), target.float())"]
    plan.loss = "mean squared error against noise"
    return None


def rand(plan, name, *sizes):
    plan.add(name, "torch.randn(BATCH, %s)" % ", ".join(map(str, sizes)), "batch x " + shaped(*sizes), "float32")


def pair(value, default):
    if isinstance(value, (list, tuple)):
        return value[0], value[-1]
    value = value or default
    return value, value


def autoencoder(plan, config):
    side = first(config, "sample_size") or 256
    height, width = pair(side, 256)
    rand(plan, "sample", first(config, "in_channels") or 3, height, width)
    plan.forward = ["outputs = model(batch[\"sample\"]).sample", "loss = torch.nn.functional.mse_loss(outputs.float(), batch[\"sample\"].float())"]
    plan.loss = "mean squared error against the picture itself; without discriminator and perceptual loss"


def unet(plan, names, config):
    height, width = pair(first(config, "sample_size"), 64)
    rand(plan, "sample", config["in_channels"], height, width)
    plan.add("timestep", "torch.randint(0, 1000, (BATCH,))", "batch", "int64")
    wide = first(config, "encoder_hid_dim", "cross_attention_dim")
    wide = wide[0] if isinstance(wide, (list, tuple)) else wide
    if "encoder_hidden_states" in names and wide:
        rand(plan, "encoder_hidden_states", PROMPT, wide)
        plan.tokens, plan.tokens_from = PROMPT, "a prompt of CLIP"
    if "added_cond_kwargs" in names and first(config, "addition_embed_type") == "text_time":
        each = config["addition_time_embed_dim"]
        text = config["projection_class_embeddings_input_dim"] - 6 * each
        plan.add("added_cond_kwargs", '{"text_embeds": torch.randn(BATCH, %d)%s, "time_ids": torch.ones(BATCH, 6)%s}' % (text, cast(plan), cast(plan)),
                 "text_embeds: batch x %d, time_ids: batch x 6" % text, plan.dtype, nested=True)
    rand(plan, "target", first(config, "out_channels") or config["in_channels"], height, width)


def cast(plan):
    return "" if plan.dtype == "float32" else ".to(torch.%s)" % plan.dtype


def transformer(plan, names, config):
    """Transformers: of pictures in rows of patches (Flux and its kind), of latents with a height and a width, and of videos."""
    channels = config["in_channels"]
    if "img_ids" in names or "img_shapes" in names:
        return packed(plan, names, config, channels)
    out = first(config, "out_channels") or channels
    is_video = "num_frames" in names or isinstance(first(config, "patch_size"), (list, tuple)) or "patch_size_t" in config or "Video" in plan.class_name
    height, width = pair(first(config, "sample_size"), 128)
    if is_video:
        height, width, frames = 60, 104, (FRAMES - 1) // 4 + 1
        sizes = (channels, frames, height, width) if "CogVideo" not in plan.class_name else (13, channels, height, 90)
        plan.notes.append("a video of %d frames at 480 x 832, as latents" % FRAMES)
        rand(plan, "hidden_states", *sizes)
        target = (out, frames, height, width) if "CogVideo" not in plan.class_name else sizes
    else:
        rand(plan, "hidden_states", channels, height, width)
        target = (out, height, width)
    plan.add("timestep", "torch.randint(0, 1000, (BATCH,))", "batch", "int64")
    prompt(plan, names, config)
    rand(plan, "target", *target)
    return None


def packed(plan, names, config, channels):
    """A picture of 1024 x 1024 as 4 096 patches of its latents."""
    patches = 64 * 64
    rand(plan, "hidden_states", patches, channels)
    plan.add("timestep", "torch.rand(BATCH)", "batch", "float32")
    prompt(plan, names, config)
    text = plan.tokens or LONG_PROMPT
    if "img_ids" in names:
        plan.add("img_ids", "torch.zeros(%d, 3)" % patches, shaped(patches, 3), "float32")
        plan.add("txt_ids", "torch.zeros(%d, 3)" % text, shaped(text, 3), "float32")
    if "img_shapes" in names:
        plan.add("img_shapes", "[[(1, 64, 64)]] * BATCH", "", "", nested=True)
    rand(plan, "target", patches, first(config, "out_channels") or channels)


def prompt(plan, names, config):
    """Texts as their encoders give them."""
    wide = first(config, "joint_attention_dim", "text_dim", "text_embed_dim", "caption_channels", "cross_attention_dim")
    if "encoder_hidden_states" in names and wide:
        tokens = 256 if "text_embed_dim" in config else 154 + 179 if "SD3" in plan.class_name else LONG_PROMPT if wide >= 2048 else PROMPT
        tokens = 226 if "CogVideo" in plan.class_name else tokens
        rand(plan, "encoder_hidden_states", tokens, wide)
        plan.tokens, plan.tokens_from = tokens, "a prompt of its encoders"
    if "encoder_attention_mask" in names and plan.tokens:
        plan.add("encoder_attention_mask", "torch.ones(BATCH, %d)" % plan.tokens, "batch x %d" % plan.tokens, "float32")
    pooled = first(config, "pooled_projection_dim")
    if "pooled_projections" in names and pooled:
        rand(plan, "pooled_projections", pooled)
    if "guidance" in names and first(config, "guidance_embeds"):
        plan.add("guidance", "torch.ones(BATCH)", "batch", "float32")
