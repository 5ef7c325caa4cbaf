from transformers import Trainer, TrainingArguments

args = TrainingArguments(
    output_dir="out",
    eval_steps=50, per_device_eval_batch_size=16,
    save_steps=1,
)
trainer = Trainer(model, args)
trainer.train()
