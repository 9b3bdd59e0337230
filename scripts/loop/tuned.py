"""Trainings of a part of a network: with requires_grad_(False), or with adapters: name -> a function that takes rows with `row(label)`.

The patterns are those of `--freeze`: of those that match a parameter's name or a module around it, the last one decides."""
import torch

from loops import Gpt, SimpleCnn, exported, features, freeze, in_turn, mlp, of_torchvision, of_transformers, photographs, pictures, tokens


def of_llama(row, patterns, **options):
    return of_transformers(row, "Llama", (2,), (48,), 3, frozen=patterns, vocab_size=512, hidden_size=64, intermediate_size=160, num_hidden_layers=2,
                           num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=64, **options)


LOOPS = {
    "freeze_gpt_head": lambda row: in_turn(row, freeze(Gpt(), "*,!head"), tokens, steps=3),
    "freeze_gpt_tables": lambda row: in_turn(row, freeze(Gpt(dropout=0.1), "tok,pos,blocks.0"), tokens, steps=3, accumulate=2),
    "freeze_gpt_biases_bf16": lambda row: in_turn(row, freeze(Gpt(), "*,!*.bias"), tokens, steps=3, amp=torch.bfloat16),
    "freeze_cnn": lambda row: in_turn(row, freeze(SimpleCnn(), "conv1"), pictures, (32,), steps=3),
    "freeze_resnet18": lambda row: in_turn(row, freeze(of_torchvision("resnet18"), "*,!fc,!layer4"), photographs, (8,), (32,), steps=3),
    "freeze_mlp_middle": lambda row: in_turn(row, freeze(mlp(), "2,4.weight"), features, (64,), steps=3),
    "freeze_hf_llama_head": lambda row: of_llama(row, "model,!*norm.weight"),
    "freeze_hf_llama_mlp": lambda row: of_llama(row, "model.embed_tokens,*.mlp"),
    "freeze_hf_gpt2_attention": lambda row: of_transformers(row, "GPT2", (2,), (48,), 3, frozen="*.attn,*.wpe", vocab_size=512, n_positions=64, n_embd=64,
                                                            n_layer=2, n_head=4, bos_token_id=0, eos_token_id=1),
    "freeze_hf_bert_encoder": lambda row: of_transformers(row, "Bert", (2,), (48,), 3, frozen="bert.embeddings,bert.encoder.layer.0", vocab_size=512,
                                                          hidden_size=64, num_hidden_layers=2, num_attention_heads=4, intermediate_size=128,
                                                          max_position_embeddings=64),
    "freeze_export_swiglu": lambda row: exported(row, "swiglu", (300,), 3, frozen="*.0,*.bias"),
    "freeze_export_mlp": lambda row: exported(row, "mlp", (300,), 3, frozen="*,!*.bias"),
}


def adapted(row, name, targets=None, rank=8, dropout=0.0, dtype=torch.float32, accumulate=1, **sizes):
    """A small network of transformers with PEFT's adapters; returns its configuration and the fields of a run."""
    import peft

    config = peft.LoraConfig(r=rank, target_modules=targets, lora_dropout=dropout)
    program = of_transformers(row, name, (2,), (48,), 3, dtype=dtype, accumulate=accumulate, adapters=lambda model: peft.get_peft_model(model, config), **sizes)
    target = targets if isinstance(targets, str) else ",".join(targets or ())
    lora = {"lora": rank, "lora-dropout": dropout, **({"lora-target": target} if target else {})}
    return {**program, "lora": lora, "accumulate": accumulate, "precision": {torch.float32: "fp32", torch.bfloat16: "bf16"}[dtype]}


LLAMA = dict(vocab_size=512, hidden_size=64, intermediate_size=160, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
             max_position_embeddings=64)
GPT2 = dict(vocab_size=512, n_positions=64, n_embd=64, n_layer=2, n_head=4, bos_token_id=0, eos_token_id=1)
BERT = dict(vocab_size=512, hidden_size=64, num_hidden_layers=2, num_attention_heads=4, intermediate_size=128, max_position_embeddings=64)

LOOPS |= {
    "lora_llama": lambda row: adapted(row, "Llama", **LLAMA),
    "lora_llama_all": lambda row: adapted(row, "Llama", "all-linear", rank=16, **LLAMA),
    "lora_llama_all_bf16": lambda row: adapted(row, "Llama", "all-linear", dtype=torch.bfloat16, **LLAMA),
    "lora_qwen3_dropout": lambda row: adapted(row, "Qwen3", ["q_proj", "down_proj"], dropout=0.05, accumulate=2, head_dim=16, **LLAMA),
    "lora_gpt2": lambda row: adapted(row, "GPT2", **GPT2),
    "lora_gpt2_all": lambda row: adapted(row, "GPT2", "all-linear", dropout=0.1, **GPT2),
    "lora_bert": lambda row: adapted(row, "Bert", **BERT),
    "lora_bert_all": lambda row: adapted(row, "Bert", "all-linear", **BERT),
}
