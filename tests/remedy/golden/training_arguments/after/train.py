from transformers import Seq2SeqTrainingArguments, Trainer

args = Seq2SeqTrainingArguments(
    output_dir="out",
    per_device_train_batch_size=16,
    dataloader_persistent_workers=True,
    dataloader_num_workers=4,
)
trainer = Trainer(model, args)
trainer.train()
