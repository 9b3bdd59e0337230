"""Trains one network as the documentation of its class says, without the driver of `vramlab predict`, and prints its peaks.

    vramlab rehearse --gpu h200 python truth.py NAME CONFIG.json    NAME: a key of `trainings`
    python truth.py --compare PROGRAM OUT.tsv [NAME...]     rehearses each beside `vramlab predict`; names that OUT.tsv has already are skipped
    python truth.py --elsewhere DRIVER OUT.tsv NAME...      trains each on another stand-in for the driver (a library to preload), beside truth.tsv

A row of OUT.tsv (--compare): name, layers of the text if they are cut on both sides, who built the network for the answer, allocated and reserved bytes of the
training, and the answer's differences from them.
"""
import json
import os
import subprocess
import sys
import tempfile

BATCH, STEPS = 2, 3
# Most layers of a network: a deeper one is cut to as many, which show every kind of layer.
MOST_LAYERS, CUT = 12, 6
DECODERS = """llama-3.1-8b llama-3.2-1b llama-3.2-3b gemma-7b mistral-7b-v0.3 mistral-nemo-12b phi-3-mini-4k phi-4 phi-4-mini qwen2.5-0.5b qwen2.5-7b
qwen3-0.6b qwen3-8b r1-distill-qwen-1.5b smollm2-135m tinyllama-1.1b falcon3-7b ministral-8b qwen3-embedding-0.6b qwen3-30b-a3b mixtral-8x7b olmo-2-7b
smollm3-3b granite-3.3-2b gemma-3-1b gpt-oss-20b glm-4-9b-0414 starcoder2-3b command-r7b deepseek-v2-lite deepseek-v3 gemma-2-9b glm-4-9b glm-4.5-air
olmo-3-7b phi-3.5-moe falcon-h1-0.5b granite-4.0-h-micro jamba-1.5-mini lfm2-1.2b mamba2-130m mamba-130m""".split()


def trainings(torch):
    """The class of each network, what its forward pass is given, on the host, and what makes the loss of its output if it makes none."""
    whole = lambda most, *sizes: torch.randint(0, most, sizes)
    text = lambda most, length=512, labels=None: lambda: dict(input_ids=whole(most, BATCH, length), labels=whole(labels or most, BATCH, length))
    pictures = lambda side, classes, name="pixel_values": lambda: {name: torch.rand(BATCH, 3, side, side), "labels": whole(classes, BATCH)}
    sounds = lambda: dict(input_values=torch.rand(BATCH, 160000), labels=torch.randint(1, 32, (BATCH, 100)))
    causal = lambda most=30000: text(most, 1024)

    def seen(token, tokens, most, **more):
        """A picture's tokens, and then text."""
        def make():
            ids = torch.cat([torch.full((BATCH, tokens), token), whole(most, BATCH, 1024 - tokens)], dim=1)
            return dict(input_ids=ids, labels=whole(most, BATCH, 1024), **{name: value() for name, value in more.items()})
        return make

    side = lambda size: lambda: torch.rand(BATCH, 3, size, size)
    patches = lambda width: lambda: torch.rand(BATCH * 1024, width)
    grid = lambda: torch.tensor([[1, 32, 32]] * BATCH)
    first = lambda tokens: lambda: torch.cat([torch.ones(BATCH, tokens, dtype=torch.long), torch.zeros(BATCH, 1024 - tokens, dtype=torch.long)], dim=1)

    def contrast(model, batch):
        """An encoder of texts: queries against passages of the batch, as sentence-transformers trains them."""
        embed = lambda ids: torch.nn.functional.normalize(model(input_ids=ids).last_hidden_state.mean(dim=1), dim=-1)
        scores = embed(batch["query"]) @ embed(batch["passage"]).T * 20.0
        return torch.nn.functional.cross_entropy(scores, torch.arange(BATCH, device="cuda")), scores

    def noise(model, batch):
        """A step of diffusion, as the examples of diffusers make it."""
        target = batch.pop("target")
        found = model(**batch, return_dict=False)[0]
        return torch.nn.functional.mse_loss(found.float(), target.float()), found

    def again(model, batch):
        found = model(batch["sample"]).sample
        return torch.nn.functional.mse_loss(found.float(), batch["sample"].float()), found

    pairs = lambda most: (lambda: dict(query=whole(most, BATCH, 512), passage=whole(most, BATCH, 512)))
    rand = lambda *sizes: torch.randn(BATCH, *sizes)
    times = lambda: whole(1000, BATCH)
    return {
        **{name: ("AutoModelForCausalLM", causal()) for name in DECODERS},
        "bert-base": ("BertForMaskedLM", text(30522)),
        "roberta-large": ("RobertaForMaskedLM", text(50265)),
        "all-minilm-l6": ("BertModel", pairs(30522), contrast),
        "bge-base-en": ("BertModel", pairs(30522), contrast),
        "e5-large-v2": ("BertModel", pairs(30522), contrast),
        "gte-modernbert-base": ("ModernBertModel", pairs(50368), contrast),
        "vit-base": ("ViTForImageClassification", pictures(224, 2)),
        "t5-small": ("T5ForConditionalGeneration", text(32128)),
        "flan-t5-base": ("T5ForConditionalGeneration", text(32128, 1024)),
        "chronos-t5-small": ("T5ForConditionalGeneration", text(4096)),
        "mt5-small": ("MT5ForConditionalGeneration", text(250112)),
        "electra-base": ("ElectraForPreTraining", text(30522, labels=2)),
        "mpnet-base": ("MPNetForMaskedLM", text(30527)),
        "esm2-650m": ("EsmForMaskedLM", text(33)),
        "deberta-v3-base": ("DebertaV2ForMaskedLM", text(128100)),
        "xlm-roberta-base": ("XLMRobertaForMaskedLM", text(250002)),
        "modernbert-base": ("ModernBertForMaskedLM", text(50368)),
        "bart-base": ("BartForConditionalGeneration", text(50265)),
        "nllb-200-600m": ("M2M100ForConditionalGeneration", text(256206)),
        "clip-vit-b32": ("CLIPModel", lambda: dict(input_ids=whole(49408, BATCH, 77), pixel_values=torch.rand(BATCH, 3, 224, 224), return_loss=True)),
        "siglip-base": ("SiglipModel", lambda: dict(input_ids=whole(32000, BATCH, 64), pixel_values=torch.rand(BATCH, 3, 224, 224), return_loss=True)),
        "convnext-tiny": ("ConvNextForImageClassification", pictures(224, 1000)),
        "swin-tiny": ("SwinForImageClassification", pictures(224, 1000)),
        "dinov2-base": ("Dinov2ForImageClassification", pictures(518, 2)),
        "segformer-b0": ("SegformerForSemanticSegmentation", lambda: dict(pixel_values=torch.rand(BATCH, 3, 512, 512), labels=whole(150, BATCH, 512, 512))),
        "whisper-small": ("WhisperForConditionalGeneration", lambda: dict(input_features=torch.rand(BATCH, 80, 3000), labels=whole(51865, BATCH, 448))),
        "whisper-large-v3": ("WhisperForConditionalGeneration", lambda: dict(input_features=torch.rand(BATCH, 128, 3000), labels=whole(51866, BATCH, 448))),
        "hubert-base": ("HubertForCTC", sounds),
        "timesfm-2.0-500m": ("TimesFmModelForPrediction", lambda: dict(past_values=torch.rand(BATCH, 2048), freq=torch.zeros(BATCH, dtype=torch.long),
                                                                      future_values=torch.rand(BATCH, 128))),
        "gemma-3-4b": ("Gemma3ForConditionalGeneration", seen(262144, 256, 262144, pixel_values=side(896), token_type_ids=first(256))),
        "paligemma-3b": ("PaliGemmaForConditionalGeneration", seen(257152, 256, 257152, pixel_values=side(224), token_type_ids=first(256))),
        "llava-1.5-7b": ("LlavaForConditionalGeneration", seen(32000, 576, 32000, pixel_values=side(336))),
        "qwen2.5-vl-7b": ("Qwen2_5_VLForConditionalGeneration", seen(151655, 256, 151600, pixel_values=patches(1176), image_grid_thw=grid,
                                                                    mm_token_type_ids=first(256))),
        "qwen3-vl-4b": ("Qwen3VLForConditionalGeneration", seen(151655, 256, 151600, pixel_values=patches(1536), image_grid_thw=grid,
                                                               mm_token_type_ids=first(256))),
        "sd15-unet": ("UNet2DConditionModel", lambda: dict(sample=rand(4, 64, 64), timestep=times(), encoder_hidden_states=rand(77, 768),
                                                          target=rand(4, 64, 64)), noise),
        "sdxl-unet": ("UNet2DConditionModel", lambda: dict(sample=rand(4, 128, 128), timestep=times(), encoder_hidden_states=rand(77, 2048),
                                                          added_cond_kwargs=dict(text_embeds=rand(1280), time_ids=torch.ones(BATCH, 6)),
                                                          target=rand(4, 128, 128)), noise),
        "sd-vae": ("AutoencoderKL", lambda: dict(sample=rand(3, 512, 512)), again),
        "flux-dev": ("FluxTransformer2DModel", lambda: dict(hidden_states=rand(4096, 64), timestep=torch.rand(BATCH), encoder_hidden_states=rand(512, 4096),
                                                           pooled_projections=rand(768), guidance=torch.ones(BATCH), img_ids=torch.zeros(4096, 3),
                                                           txt_ids=torch.zeros(512, 3), target=rand(4096, 64)), noise),
        "sd3-medium": ("SD3Transformer2DModel", lambda: dict(hidden_states=rand(16, 128, 128), timestep=times(), encoder_hidden_states=rand(333, 4096),
                                                            pooled_projections=rand(2048), target=rand(16, 128, 128)), noise),
    }


def cut(config):
    """The configuration with fewer layers, and their number; as it is, and nothing, if it has few."""
    inner = config.get("text_config") or config
    sides = [config[side] for side in ("encoder_layers", "decoder_layers") if config.get(side)]
    if sides and max(sides) > MOST_LAYERS:
        return {**config, "encoder_layers": CUT, "decoder_layers": CUT}, str(CUT)
    layers = inner.get("num_hidden_layers")
    if not isinstance(layers, int) or layers <= MOST_LAYERS:
        return config, ""
    kinds = {key: value[:CUT] for key, value in inner.items() if isinstance(value, list) and len(value) == layers}
    fewer = {**inner, **kinds, "num_hidden_layers": CUT}
    return (fewer if inner is config else {**config, "text_config": fewer}), str(CUT)


def train(name, path):
    import torch
    import transformers
    from transformers.initialization import no_init_weights

    with open(path) as file:
        data = json.load(file)
    if "FAKECUDA_SM" in os.environ:
        # The other stand-in has no cuDNN.
        torch.backends.cudnn.enabled = False
        torch.backends.cuda.enable_cudnn_sdp(False)
    kind, inputs, *losses = trainings(torch)[name]
    plain = lambda model, batch: (lambda found: (found.loss, found))(model(**batch))
    forward = losses[0] if losses else plain
    dtype = getattr(torch, data.get("torch_dtype") or "float32")
    if "_class_name" in data:
        import diffusers

        cls = getattr(diffusers, kind)
        model = cls.from_config(data)
    else:
        cls = getattr(transformers, kind)
        data.pop("quantization_config", None)
        config = transformers.AutoConfig.for_model(**data)
        # A step that drops no layer takes most, and comes sooner or later.
        for drop in ("layerdrop", "encoder_layerdrop", "decoder_layerdrop"):
            if getattr(config, drop, None):
                setattr(config, drop, 0.0)
        # What the weights are changes no size.
        with no_init_weights():
            model = cls.from_config(config, dtype=dtype) if kind.startswith("Auto") else cls._from_config(config, dtype=dtype)
        model.tie_weights()
    model = model.to("cuda").train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)

    def to_card(value):
        if isinstance(value, dict):
            return {key: to_card(one) for key, one in value.items()}
        if not isinstance(value, torch.Tensor):
            return value
        return (value.to(dtype) if value.is_floating_point() else value).to("cuda")

    for _ in range(STEPS):
        batch = to_card(inputs())
        optimizer.zero_grad()
        # What the network returned lives until the next step, as in a script.
        loss, _outputs = forward(model, batch)
        loss.backward()
        optimizer.step()
    print("PEAK", torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved())


def row(program, name, config):
    import count

    with tempfile.TemporaryDirectory() as folder:
        config, layers = cut(config)
        path = os.path.join(folder, name, "config.json")
        os.mkdir(os.path.dirname(path))
        with open(path, "w") as file:
            json.dump(config, file)
        # A card as large as it must be has the multiprocessors of the other.
        card = "8TiB" if name in count.LARGE else "h200"
        words = [program, "rehearse", "--gpu", card, sys.executable, os.path.abspath(__file__), name, path]
        ran = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        peak = next((line.split()[1:3] for line in ran.stdout.splitlines() if line.startswith("PEAK")), None)
        if peak is None:
            failed = [line for line in ran.stdout.splitlines() if "Error" in line][-1:] or ran.stdout.strip().splitlines()[-1:]
            return [name, layers, "no truth", *(line[:200] for line in failed)]
        by, verdict, *found = count.asked(program, path, config, folder, card)
    if verdict == "error":
        return [name, layers, "no answer", *peak, found[-1]]
    away = ["equal" if one == other else "%+.4f %%" % (100 * (int(one) - int(other)) / int(other)) for one, other in zip(found, peak)]
    return [name, layers, by, *peak, *away, ""]


def elsewhere(driver, name, config):
    """Name, layers, peaks on another stand-in, and their differences from those of truth.tsv."""
    here = os.path.dirname(os.path.abspath(__file__))
    with open(os.path.join(here, "truth.tsv")) as file:
        known = {line.split("\t")[0]: line.split("\t") for line in file if not line.startswith("#")}
    layers, peaks = known[name][1], known[name][3:5]
    with tempfile.TemporaryDirectory() as folder:
        config = cut(config)[0] if layers else config
        path = os.path.join(folder, "config.json")
        with open(path, "w") as file:
            json.dump(config, file)
        environment = dict(os.environ, LD_PRELOAD=driver, FAKECUDA_SM="90", FAKECUDA_MEM=str(1 << 43))
        ran = subprocess.run([sys.executable, os.path.abspath(__file__), name, path], env=environment, stdout=subprocess.PIPE,
                             stderr=subprocess.STDOUT, text=True)
    peak = next((line.split()[1:3] for line in ran.stdout.splitlines() if line.startswith("PEAK")), None)
    if peak is None:
        return [name, layers, "does not run", *ran.stdout.strip().splitlines()[-1:]]
    away = ["equal" if one == other else "%+d" % (int(one) - int(other)) for one, other in zip(peak, peaks)]
    return [name, layers, *peak, *away]


def compare(program, out, *names):
    import torch

    import count

    models = count.configurations()
    count.resumed(out, names or trainings(torch), lambda name: row(program, name, models[name]))


if __name__ == "__main__":
    sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
    if sys.argv[1] == "--elsewhere":
        import count

        driver, out, *names = sys.argv[2:]
        models = count.configurations()
        count.resumed(out, names, lambda name: elsewhere(driver, name, models[name]))
    elif sys.argv[1] == "--compare":
        compare(*sys.argv[2:])
    else:
        train(*sys.argv[1:])
