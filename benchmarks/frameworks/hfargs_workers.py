"""transformers: arguments from a JSON file, a Trainer of our own; the dataset hashes words in Python."""

import json
import sys
from dataclasses import dataclass, field

import torch
from torch import nn
from transformers import BertConfig, BertForSequenceClassification, HfArgumentParser, Trainer, TrainerCallback, TrainingArguments


@dataclass
class ModelArguments:
    hidden_size: int = field(default=128)


@dataclass
class DataArguments:
    data_path: str = field(default="reviews.jsonl")
    max_length: int = field(default=128)


class Reviews(torch.utils.data.Dataset):
    def __init__(self, path, max_length):
        self.rows = [json.loads(line) for line in open(path)]
        self.max_length = max_length

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        row = self.rows[index]
        ids = []
        for word in row["text"].split():
            value = 17
            for _ in range(3):
                for letter in word:
                    value = (value * 31 + ord(letter)) % 4093
            ids.append(value % 1000)
        ids = ids[: self.max_length]
        return {"input_ids": ids, "attention_mask": [1] * len(ids), "labels": row["label"]}


class WeightedTrainer(Trainer):
    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        labels = inputs.pop("labels")
        outputs = model(**inputs)
        loss = nn.functional.cross_entropy(outputs.logits, labels, weight=torch.tensor([1.0, 2.0]))
        return (loss, outputs) if return_outputs else loss


class Echo(TrainerCallback):
    def on_log(self, args, state, control, logs=None, **kwargs):
        print(state.global_step, logs.get("loss"))


def main():
    parser = HfArgumentParser((ModelArguments, DataArguments, TrainingArguments))
    model_args, data_args, training_args = parser.parse_json_file(json_file=sys.argv[1])
    config = BertConfig(vocab_size=1000, hidden_size=model_args.hidden_size, num_hidden_layers=1, num_attention_heads=2, intermediate_size=128)
    trainer = WeightedTrainer(
        model=BertForSequenceClassification(config),
        args=training_args,
        train_dataset=Reviews(data_args.data_path, data_args.max_length),
        callbacks=[Echo()],
    )
    trainer.train()


if __name__ == "__main__":
    main()
