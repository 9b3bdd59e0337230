"""transformers' Trainer on GPT-2 for this many steps, 4 x 512 tokens (the second argument sets the number of rows)."""

import sys
import tempfile

import torch
from transformers import AutoModelForCausalLM, GPT2Config, Trainer, TrainingArguments

rows = [{"input_ids": ids, "labels": ids, "attention_mask": torch.ones_like(ids)} for ids in torch.randint(50257, (400, 512))]
with tempfile.TemporaryDirectory() as folder:
    arguments = TrainingArguments(folder, per_device_train_batch_size=int(sys.argv[2]) if len(sys.argv) > 2 else 4, max_steps=int(sys.argv[1]), save_strategy="no", report_to=[])
    Trainer(AutoModelForCausalLM.from_config(GPT2Config()), arguments, train_dataset=rows).train()
