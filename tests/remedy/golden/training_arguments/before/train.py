from transformers import Seq2SeqTrainingArguments, Trainer

args = Seq2SeqTrainingArguments(
    output_dir="out",
    per_device_train_batch_size=8,
    dataloader_persistent_workers=False,
)
trainer = Trainer(model, args)
trainer.train()
