"""A GPT-2 that computes: tensors in memory, evaluation and checkpoint now and then."""

import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments


class Tokens(torch.utils.data.Dataset):
    def __init__(self, size, seed):
        self.data = torch.randint(0, 200, (size, 128), generator=torch.Generator().manual_seed(seed))

    def __len__(self):
        return len(self.data)

    def __getitem__(self, index):
        return {"input_ids": self.data[index], "labels": self.data[index]}


model = GPT2LMHeadModel(GPT2Config(vocab_size=200, n_positions=128, n_embd=256, n_layer=2, n_head=4))
args = TrainingArguments(
    output_dir="out-hf-healthy",
    per_device_train_batch_size=8,
    gradient_accumulation_steps=2,
    max_steps=20,
    eval_strategy="steps",
    eval_steps=10,
    save_steps=10,
    logging_steps=10,
    report_to=[],
    use_cpu=True,
)
Trainer(model=model, args=args, train_dataset=Tokens(4000, 0), eval_dataset=Tokens(32, 1)).train()
