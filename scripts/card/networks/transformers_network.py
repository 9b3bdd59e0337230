"""A network of transformers, without weights, with AdamW: python transformers_network.py KIND BATCH LENGTH [float32|autocast|bfloat16] [checkpointed]"""

import contextlib
import sys

import torch
import transformers

kind, batch, length, *words = sys.argv[1:]
batch, length = int(batch), int(length)


# Language models by the name of their configuration, with what makes them small.
LANGUAGE = {"qwen3": "Qwen3", "mixtral": "Mixtral", "opt": "OPT", "phi": "Phi", "gpt_neox": "GPTNeoX"}
SMALL = {
    "qwen3": {"vocab_size": 32000, "hidden_size": 1024, "intermediate_size": 3072, "num_hidden_layers": 8, "num_attention_heads": 16, "num_key_value_heads": 8, "head_dim": 64},
    "mixtral": {"vocab_size": 32000, "hidden_size": 512, "intermediate_size": 1024, "num_hidden_layers": 6, "num_attention_heads": 8, "num_key_value_heads": 4, "num_local_experts": 4},
    "opt": {},
    "phi": {"hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 8, "num_attention_heads": 16},
    "gpt_neox": {"hidden_size": 768, "intermediate_size": 3072, "num_hidden_layers": 12, "num_attention_heads": 12},
}


def ids(words):
    return torch.randint(10, words, (batch, length), device="cuda")


def made():
    """The network, and what makes the arguments of a call."""
    if kind == "gpt2":
        config = transformers.GPT2Config()
        return transformers.GPT2LMHeadModel(config), lambda: dict(zip(("input_ids", "labels"), [ids(config.vocab_size)] * 2))
    if kind == "llama":
        config = transformers.LlamaConfig(vocab_size=32000, hidden_size=1024, intermediate_size=2816, num_hidden_layers=8, num_attention_heads=16, num_key_value_heads=4)
        return transformers.LlamaForCausalLM(config), lambda: dict(zip(("input_ids", "labels"), [ids(config.vocab_size)] * 2))
    if kind == "bert":
        config = transformers.BertConfig(num_labels=2)
        return transformers.BertForSequenceClassification(config), lambda: {"input_ids": ids(config.vocab_size), "labels": torch.randint(2, (batch,), device="cuda"),
                                                                            "attention_mask": torch.ones(batch, length, dtype=torch.long, device="cuda")}
    if kind == "t5":
        config = transformers.T5Config(decoder_start_token_id=0)
        return transformers.T5ForConditionalGeneration(config), lambda: {"input_ids": ids(config.vocab_size), "labels": ids(config.vocab_size)}
    if kind == "vit":
        config = transformers.ViTConfig(num_labels=1000)
        return transformers.ViTForImageClassification(config), lambda: {"pixel_values": torch.rand(batch, 3, 224, 224, device="cuda"), "labels": torch.randint(1000, (batch,), device="cuda")}
    if kind in LANGUAGE:
        config = getattr(transformers, f"{LANGUAGE[kind]}Config")(**SMALL[kind])
        return transformers.AutoModelForCausalLM.from_config(config), lambda: dict(zip(("input_ids", "labels"), [ids(config.vocab_size)] * 2))
    if kind == "roberta":
        config = transformers.RobertaConfig(max_position_embeddings=514)
        return transformers.RobertaForMaskedLM(config), lambda: dict(zip(("input_ids", "labels"), [ids(config.vocab_size)] * 2))
    if kind == "wav2vec2":
        config = transformers.Wav2Vec2Config(num_labels=8)
        return transformers.Wav2Vec2ForSequenceClassification(config), lambda: {"input_values": torch.rand(batch, length, device="cuda"), "labels": torch.randint(8, (batch,), device="cuda")}
    config = transformers.WhisperConfig(decoder_start_token_id=1, pad_token_id=0, bos_token_id=1, eos_token_id=2)
    return transformers.WhisperForConditionalGeneration(config), lambda: {"input_features": torch.rand(batch, config.num_mel_bins, 3000, device="cuda"), "labels": ids(config.vocab_size)}


# Some networks leave out layers at random (wav2vec 2.0).
torch.manual_seed(0)
network, arguments = made()
network = network.to("cuda", torch.bfloat16 if "bfloat16" in words else None).train()
if "checkpointed" in words:
    network.gradient_checkpointing_enable()
optimizer = torch.optim.AdamW(network.parameters(), lr=1e-4)
for _ in range(4):
    with torch.autocast("cuda", dtype=torch.bfloat16) if "autocast" in words else contextlib.nullcontext():
        given = arguments()
        if "bfloat16" in words:
            given = {name: value.bfloat16() if value.is_floating_point() else value for name, value in given.items()}
        loss = network(**given).loss
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    print(loss.item())
