"""Fine-tune a small BERT from scratch on a datasets.Dataset."""

import numpy as np
from datasets import Dataset
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    DataCollatorWithPadding,
    Trainer,
    TrainingArguments,
)


def make(size, seed):
    rng = np.random.default_rng(seed)
    ids = rng.integers(0, 100, (size, 32))
    return Dataset.from_dict(
        {"input_ids": ids.tolist(), "attention_mask": np.ones_like(ids).tolist(), "labels": (ids[:, 0] % 2).tolist()}
    )


def compute_metrics(prediction):
    return {"accuracy": float((prediction.predictions.argmax(-1) == prediction.label_ids).mean())}


config = BertConfig(vocab_size=100, hidden_size=64, num_hidden_layers=2, num_attention_heads=2, intermediate_size=128)
model = BertForSequenceClassification(config)
training_args = TrainingArguments(
    output_dir="out-hf-eval",
    per_device_train_batch_size=32,
    num_train_epochs=1,
    eval_strategy="steps",
    eval_steps=5,
    logging_steps=25,
    save_strategy="no",
    report_to="none",
    use_cpu=True,
)
trainer = Trainer(
    model=model,
    args=training_args,
    train_dataset=make(1600, 0),
    eval_dataset=make(96, 1),
    compute_metrics=compute_metrics,
)
trainer.train()
print(trainer.evaluate())
