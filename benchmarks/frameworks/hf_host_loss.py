"""transformers: a Trainer whose loss weighs every token in a Python loop."""

import torch
from torch import nn
from transformers import GPT2Config, GPT2LMHeadModel, HfArgumentParser, Trainer, TrainingArguments


class Tokens(torch.utils.data.Dataset):
    def __init__(self, size):
        self.data = torch.randint(0, 200, (size, 64), generator=torch.Generator().manual_seed(0))

    def __len__(self):
        return len(self.data)

    def __getitem__(self, index):
        return {"input_ids": self.data[index], "labels": self.data[index]}


class FocalTrainer(Trainer):
    def token_weights(self, labels):
        weights = torch.ones(labels.shape)
        for row in range(labels.shape[0]):
            for column in range(labels.shape[1]):
                seen = (labels[row, :column] == labels[row, column]).sum().item()
                weights[row, column] = 1 / (1 + seen)
        return weights

    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        labels = inputs["labels"]
        outputs = model(input_ids=inputs["input_ids"])
        losses = nn.functional.cross_entropy(outputs.logits[:, :-1].transpose(1, 2), labels[:, 1:], reduction="none")
        loss = (losses * self.token_weights(labels)[:, 1:]).mean()
        return (loss, outputs) if return_outputs else loss


def main():
    (args,) = HfArgumentParser(TrainingArguments).parse_args_into_dataclasses()
    model = GPT2LMHeadModel(GPT2Config(vocab_size=200, n_positions=64, n_embd=128, n_layer=2, n_head=4))
    FocalTrainer(model=model, args=args, train_dataset=Tokens(1600)).train()


if __name__ == "__main__":
    main()
