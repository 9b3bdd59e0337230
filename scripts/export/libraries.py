"""Networks of libraries (transformers, torchvision, timm, diffusers), in small configurations: name -> (make, examples, loss), as in networks.py."""
import torch
import torch.nn as nn


def pictures(channels, side):
    return lambda batch: (torch.randn(batch, channels, side, side),)


def tokens(length, vocabulary, count=2):
    return lambda batch: tuple(torch.randint(vocabulary, (batch, length)) for _ in range(count))


class Given(nn.Module):
    """A network of transformers that is called with two keywords: the loss alone, or the loss and the logits."""

    def __init__(self, network, names, logits=True, **fixed):
        super().__init__()
        self.network, self.names, self.logits, self.fixed = network, names, logits, fixed

    def forward(self, first, second):
        out = self.network(**dict(zip(self.names, (first, second))), **self.fixed)
        return (out.loss, out.logits) if self.logits else out.loss


class Labelled(nn.Module):
    """A network of transformers with its labels: the loss first, then the logits."""

    def __init__(self, network):
        super().__init__()
        self.network = network

    def forward(self, input_ids, labels):
        out = self.network(input_ids=input_ids, labels=labels, use_cache=False)
        return out.loss, out.logits


def transformers(kind, config, **settings):
    def make():
        import transformers as library
        return Labelled(getattr(library, kind)(getattr(library, config)(**settings)))
    return make


def given(kind, config, names, logits=True, fixed=(), **settings):
    def make():
        import transformers as library
        return Given(getattr(library, kind)(getattr(library, config)(**settings)), names, logits, **dict(fixed))
    return make


def bert():
    import transformers as library

    class Masked(nn.Module):
        def __init__(self):
            super().__init__()
            settings = dict(hidden_size=64, num_hidden_layers=2, num_attention_heads=4, intermediate_size=128)
            self.bert = library.BertForMaskedLM(library.BertConfig(vocab_size=128, max_position_embeddings=64, **settings))

        def forward(self, input_ids, labels):
            out = self.bert(input_ids=input_ids, labels=labels)
            return out.loss, out.logits
    return Masked()


def clip():
    import transformers as library
    text = dict(vocab_size=128, hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4, max_position_embeddings=16,
                eos_token_id=127)
    vision = dict(hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4, image_size=32, patch_size=8)
    network = library.CLIPModel(library.CLIPConfig(text_config=text, vision_config=vision, projection_dim=32))

    class Contrasted(nn.Module):
        """The loss as CLIP has it; its own takes `len` of a tensor, which fixes the batch of an export."""

        def __init__(self):
            super().__init__()
            self.network = network

        def forward(self, input_ids, pixel_values):
            scores = self.network(input_ids=input_ids, pixel_values=pixel_values).logits_per_text
            pairs = torch.arange(scores.size(0), device=scores.device)
            return (nn.functional.cross_entropy(scores, pairs) + nn.functional.cross_entropy(scores.t(), pairs)) / 2
    return Contrasted()


def vision(name, **settings):
    def make():
        import torchvision
        return getattr(torchvision.models, name)(**settings)
    return make


class OneOf(nn.Module):
    """One of several outputs."""

    def __init__(self, network, key):
        super().__init__()
        self.network, self.key = network, key

    def forward(self, x):
        return self.network(x)[self.key]


def deeplab():
    import torchvision
    network = torchvision.models.segmentation.deeplabv3_mobilenet_v3_large(weights=None, weights_backbone=None, num_classes=4)
    return OneOf(network, "out")


def ssd_backbone():
    import torchvision
    return OneOf(torchvision.models.detection.ssd300_vgg16(weights=None, weights_backbone=None).backbone, "0")


def inception():
    import torchvision
    return torchvision.models.inception_v3(num_classes=10, aux_logits=False, init_weights=False)


def timm(name, **settings):
    def make():
        import timm as library
        return library.create_model(name, num_classes=10, **settings)
    return make


def unet2d():
    import diffusers as library
    settings = dict(sample_size=32, in_channels=3, out_channels=3, layers_per_block=1, block_out_channels=(32, 64),
                    down_block_types=("DownBlock2D", "AttnDownBlock2D"), up_block_types=("AttnUpBlock2D", "UpBlock2D"))

    class Denoised(nn.Module):
        def __init__(self):
            super().__init__()
            self.unet = library.UNet2DModel(**settings)

        def forward(self, noisy, timesteps, noise):
            return nn.functional.mse_loss(self.unet(noisy, timesteps, return_dict=False)[0], noise)
    return Denoised()


SMALL = dict(hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4)
DECODER = dict(vocab_size=128, num_key_value_heads=2, max_position_embeddings=64, **SMALL)
ENCODERS = dict(d_model=64, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4, decoder_attention_heads=4, encoder_ffn_dim=128,
                decoder_ffn_dim=128, vocab_size=128)
SPECIAL = dict(pad_token_id=1, bos_token_id=0, eos_token_id=2, decoder_start_token_id=2)


def speech(batch):
    return torch.randn(batch, 16, 64), torch.randint(128, (batch, 24))


def images_and_words(batch):
    return torch.randint(128, (batch, 16)), torch.randn(batch, 3, 32, 32)


def noisy(batch):
    return torch.randn(batch, 3, 32, 32), torch.randint(1000, (batch,)), torch.randn(batch, 3, 32, 32)


NETWORKS = {
    "gpt2": (transformers("GPT2LMHeadModel", "GPT2Config", n_embd=64, n_layer=2, n_head=4, vocab_size=128, n_positions=64),
             tokens(32, 128), "inside"),
    "llama": (transformers("LlamaForCausalLM", "LlamaConfig", **DECODER), tokens(32, 128), "inside"),
    "bert": (bert, tokens(32, 128), "inside"),
    "gemma2": (transformers("Gemma2ForCausalLM", "Gemma2Config", head_dim=16, sliding_window=16, **DECODER), tokens(32, 128), "inside"),
    "gemma3": (transformers("Gemma3ForCausalLM", "Gemma3TextConfig", head_dim=16, sliding_window=16, **DECODER), tokens(32, 128), "inside"),
    "mixtral": (transformers("MixtralForCausalLM", "MixtralConfig", num_local_experts=4, **DECODER), tokens(32, 128), "inside"),
    "bart": (given("BartForConditionalGeneration", "BartConfig", ["input_ids", "labels"], fixed=[("use_cache", False)],
                   max_position_embeddings=64, **SPECIAL, **ENCODERS), tokens(32, 128), "inside"),
    "whisper": (given("WhisperForConditionalGeneration", "WhisperConfig", ["input_features", "labels"], fixed=[("use_cache", False)],
                      num_mel_bins=16, max_source_positions=32, max_target_positions=64, **SPECIAL, **ENCODERS), speech, "inside"),
    "wav2vec2": (given("Wav2Vec2ForSequenceClassification", "Wav2Vec2Config", ["input_values", "labels"], conv_dim=(32, 32, 32),
                       conv_kernel=(10, 3, 2), conv_stride=(5, 2, 2), num_feat_extract_layers=3, num_conv_pos_embeddings=16,
                       num_conv_pos_embedding_groups=4, classifier_proj_size=32, vocab_size=32, apply_spec_augment=False, layerdrop=0.0, **SMALL),
                 lambda batch: (torch.randn(batch, 1600), torch.randint(2, (batch,))), "inside"),
    "clip": (clip, images_and_words, "inside"),
    "unet2d": (unet2d, noisy, "inside"),
    "resnet50": (vision("resnet50", num_classes=10), pictures(3, 64), "cross-entropy"),
    "mobilenet-v3": (vision("mobilenet_v3_small", num_classes=10), pictures(3, 32), "cross-entropy"),
    "shufflenet": (vision("shufflenet_v2_x0_5", num_classes=10), pictures(3, 64), "cross-entropy"),
    "efficientnet": (vision("efficientnet_b0", num_classes=10), pictures(3, 64), "cross-entropy"),
    "densenet": (vision("DenseNet", growth_rate=8, block_config=(2, 3), num_init_features=16, num_classes=10), pictures(3, 64), "cross-entropy"),
    "convnext": (vision("convnext_tiny", num_classes=10), pictures(3, 64), "cross-entropy"),
    "regnet": (vision("regnet_y_400mf", num_classes=10), pictures(3, 64), "cross-entropy"),
    "inception": (inception, pictures(3, 96), "cross-entropy"),
    "deeplab": (deeplab, pictures(3, 64), "mean"),
    "ssd-backbone": (ssd_backbone, pictures(3, 300), "mean"),
    "swin": (vision("SwinTransformer", patch_size=[4, 4], embed_dim=32, depths=[2, 2], num_heads=[2, 4], window_size=[4, 4], num_classes=10),
             pictures(3, 64), "cross-entropy"),
    "vit": (vision("VisionTransformer", image_size=32, patch_size=8, num_layers=2, num_heads=4, hidden_dim=64, mlp_dim=128, num_classes=10),
            pictures(3, 32), "cross-entropy"),
    "timm-vit": (timm("vit_small_patch16_224", img_size=64, depth=3), pictures(3, 64), "cross-entropy"),
    "timm-deit": (timm("deit_tiny_distilled_patch16_224", img_size=64, depth=3), pictures(3, 64), "cross-entropy"),
    "timm-convnext": (timm("convnext_tiny", depths=(1, 1, 2, 1)), pictures(3, 64), "cross-entropy"),
    "timm-efficientnet": (timm("efficientnet_b3"), pictures(3, 64), "cross-entropy"),
    "timm-mobilenetv4": (timm("mobilenetv4_conv_small"), pictures(3, 64), "cross-entropy"),
    "timm-swin": (timm("swin_tiny_patch4_window7_224", img_size=56, depths=(2, 2), num_heads=(2, 4), embed_dim=32), pictures(3, 56), "cross-entropy"),
    "timm-regnety": (timm("regnety_002"), pictures(3, 64), "cross-entropy"),
    "timm-eva02": (timm("eva02_tiny_patch14_224", img_size=56, depth=3), pictures(3, 56), "cross-entropy"),
}
