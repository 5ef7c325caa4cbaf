"""A small GPT-2 with a checkpoint after every step."""

import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments


class Tokens(torch.utils.data.Dataset):
    def __init__(self, size):
        generator = torch.Generator().manual_seed(0)
        self.data = torch.randint(0, 200, (size, 64), generator=generator)

    def __len__(self):
        return len(self.data)

    def __getitem__(self, index):
        return {"input_ids": self.data[index], "labels": self.data[index]}


model = GPT2LMHeadModel(GPT2Config(vocab_size=2000, n_positions=64, n_embd=256, n_layer=2, n_head=4))
args = TrainingArguments(
    output_dir="out-hf-ckpt",
    per_device_train_batch_size=4,
    max_steps=50,
    save_steps=1,
    save_total_limit=2,
    logging_steps=10,
    report_to=[],
    use_cpu=True,
)
Trainer(model=model, args=args, train_dataset=Tokens(1000)).train()
