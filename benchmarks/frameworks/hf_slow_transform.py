"""Train a small GPT-2 on generated text: tokenization in __getitem__."""

import random

import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

WORDS = ["alpha", "beta", "gamma", "delta", "epsilon", "zeta", "eta", "theta", "iota", "kappa"]
VOCAB = {word: number for number, word in enumerate(WORDS)}


class TextDataset(torch.utils.data.Dataset):
    def __init__(self, size, length=64, seed=0):
        rng = random.Random(seed)
        self.length = length
        self.texts = [" ".join(rng.choices(WORDS, k=length)) for _ in range(size)]

    def __len__(self):
        return len(self.texts)

    def tokenize(self, text):
        ids = []
        for word in text.split():
            score = 0
            for repeat in range(60):
                for letter in word:
                    score = (score * 31 + ord(letter)) % 65537
            ids.append(VOCAB[word] + score % 2 * 10)
        return ids

    def __getitem__(self, index):
        ids = torch.tensor(self.tokenize(self.texts[index])[: self.length])
        return {"input_ids": ids, "labels": ids.clone()}


def main():
    torch.manual_seed(0)
    config = GPT2Config(vocab_size=32, n_positions=64, n_embd=32, n_layer=1, n_head=2)
    model = GPT2LMHeadModel(config)
    args = TrainingArguments(
        output_dir="out-hf-slow",
        per_device_train_batch_size=8,
        per_device_eval_batch_size=16,
        gradient_accumulation_steps=2,
        max_steps=60,
        learning_rate=1e-3,
        logging_steps=10,
        eval_strategy="steps",
        eval_steps=30,
        save_steps=30,
        report_to=[],
        use_cpu=True,
        seed=0,
    )
    trainer = Trainer(
        model=model,
        args=args,
        train_dataset=TextDataset(2000),
        eval_dataset=TextDataset(64, seed=1),
    )
    trainer.train()


if __name__ == "__main__":
    main()
