import sys

from transformers import HfArgumentParser, Trainer, TrainingArguments

(args,) = HfArgumentParser(TrainingArguments).parse_json_file(sys.argv[1])
trainer = Trainer(model, args)
trainer.train()
