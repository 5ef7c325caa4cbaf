"""A small GPT-2; the collator masks tokens one by one."""

import random
from dataclasses import dataclass

import torch
from datasets import Dataset
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments


@dataclass
class MaskingCollator:
    rate: float = 0.15

    def __call__(self, features):
        rows, labels = [], []
        for feature in features:
            row, label = [], []
            for token in feature["input_ids"]:
                noise = sum(random.random() for _ in range(12)) / 12
                row.append(99 if noise < 0.3 else token)
                label.append(token)
            rows.append(row)
            labels.append(label)
        return {"input_ids": torch.tensor(rows), "labels": torch.tensor(labels)}


def main():
    data = Dataset.from_dict({"input_ids": [[(i * 7 + j) % 99 for j in range(128)] for i in range(800)]})
    model = GPT2LMHeadModel(GPT2Config(vocab_size=100, n_positions=128, n_embd=48, n_layer=1, n_head=2))
    args = TrainingArguments(
        output_dir="out-hf-collate",
        per_device_train_batch_size=16,
        num_train_epochs=3,
        logging_steps=50,
        save_strategy="no",
        report_to=[],
        use_cpu=True,
    )
    Trainer(model=model, args=args, train_dataset=data, data_collator=MaskingCollator()).train()


if __name__ == "__main__":
    main()
