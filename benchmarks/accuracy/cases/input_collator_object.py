# truth: input/slow-collate | input/single-process
# bottleneck: input
# line: value = |piece|character|Collator|DataLoader
# not: input/repeated-work | input/slow-sample | input/per-sample-conversion
"""Text classification with a small Trainer."""
import json
import random
import re
import time
from dataclasses import dataclass, field

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

ALPHABET = "abcdefghijklmnopqrstuvwxyz"
chooser = random.Random(0)
WORDS = ["".join(chooser.choices(ALPHABET, k=chooser.randint(2, 9))) for _ in range(2000)]
ROWS = [json.dumps({"text": " ".join(chooser.choices(WORDS, k=400)), "label": chooser.randint(0, 3)}) for _ in range(3000)]


@dataclass
class TrainingArguments:
    per_device_train_batch_size: int = 32
    max_steps: int = 600
    learning_rate: float = 3e-4
    logging_steps: int = 100
    dataloader_num_workers: int = 0


class Lines(Dataset):
    def __init__(self, lines):
        self.lines = lines

    def __len__(self):
        return len(self.lines)

    def __getitem__(self, index):
        return self.lines[index]


class Collator:
    pattern = re.compile(r"[a-z]{1,3}")

    def __init__(self, max_length=160):
        self.max_length = max_length

    def pieces(self, text):
        out = []
        for word in text.split():
            for piece in self.pattern.findall(word):
                value = 0
                for character in piece:
                    value = (value * 31 + ord(character)) % 8000
                out.append(value + 2)
        return out[: self.max_length]

    def __call__(self, rows):
        records = [json.loads(row) for row in rows]
        ids = [self.pieces(record["text"]) for record in records]
        width = max(len(row) for row in ids)
        padded = torch.zeros(len(ids), width, dtype=torch.long)
        for i, row in enumerate(ids):
            padded[i, : len(row)] = torch.tensor(row)
        return {"input_ids": padded, "labels": torch.tensor([r["label"] for r in records])}


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(8002, 32)
        self.encoder = nn.Sequential(nn.Linear(32, 32), nn.GELU())
        self.head = nn.Linear(32, 4)

    def forward(self, input_ids, labels=None):
        hidden = self.encoder(self.embed(input_ids)).mean(1)
        logits = self.head(hidden)
        return {"loss": nn.functional.cross_entropy(logits, labels), "logits": logits}


class Callback:
    def on_step_end(self, state):
        pass


class PrintCallback(Callback):
    def on_step_end(self, state):
        if state["step"] % state["args"].logging_steps == 0:
            print({"loss": round(state["loss"], 4), "step": state["step"]})


@dataclass
class Trainer:
    model: nn.Module
    args: TrainingArguments
    train_dataset: Dataset
    data_collator: Collator
    callbacks: list = field(default_factory=lambda: [PrintCallback()])

    def get_train_dataloader(self):
        return DataLoader(
            self.train_dataset,
            batch_size=self.args.per_device_train_batch_size,
            shuffle=True,
            collate_fn=self.data_collator,
            num_workers=self.args.dataloader_num_workers,
        )

    def training_step(self, inputs):
        self.model.train()
        loss = self.model(**inputs)["loss"]
        loss.backward()
        return loss.detach()

    def train(self):
        optimizer = torch.optim.AdamW(self.model.parameters(), lr=self.args.learning_rate)
        step = 0
        while step < self.args.max_steps:
            for inputs in self.get_train_dataloader():
                loss = self.training_step(inputs)
                optimizer.step()
                optimizer.zero_grad()
                step += 1
                for callback in self.callbacks:
                    callback.on_step_end({"step": step, "loss": loss.item(), "args": self.args})
                if step >= self.args.max_steps:
                    break


if __name__ == "__main__":
    torch.manual_seed(0)
    began = time.perf_counter()
    Trainer(Classifier(), TrainingArguments(), Lines(ROWS), Collator()).train()
    print(f"TRAIN {time.perf_counter() - began:.2f}")
