"""Trainings in which some parameters have requires_grad_(False): name -> a function that takes rows with `row(label)`.

The patterns are those of `--freeze`: of those that match a parameter's name or a module around it, the last one decides."""
import torch

from loops import (Gpt, SimpleCnn, exported, features, freeze, in_turn, mlp, of_torchvision, of_transformers, photographs, pictures,
                   tokens)


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
    "freeze_hf_t5_encoder": lambda row: of_transformers(row, "T5", (2,), (48,), 3, frozen="encoder.block", vocab_size=512, d_model=64, d_kv=16, d_ff=128,
                                                        num_layers=2, num_heads=4, decoder_start_token_id=0),
    "freeze_export_swiglu": lambda row: exported(row, "swiglu", (300,), 3, frozen="*.0,*.bias"),
    "freeze_export_mlp": lambda row: exported(row, "mlp", (300,), 3, frozen="*,!*.bias"),
}
