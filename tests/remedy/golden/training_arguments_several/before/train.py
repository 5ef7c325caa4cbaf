from transformers import Trainer, TrainingArguments

first = TrainingArguments(output_dir="first")
second = TrainingArguments(output_dir="second")
for args in (first, second):
    trainer = Trainer(model, args)
    trainer.train()
