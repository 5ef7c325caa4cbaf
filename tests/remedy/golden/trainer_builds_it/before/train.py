from transformers import Trainer

trainer = Trainer(model, args)
trainer.train()
