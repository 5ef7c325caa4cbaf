"""sentence-transformers: its trainer on pairs of sentences, a small BERT; it computes."""

import json

from datasets import Dataset
from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer, SentenceTransformerTrainingArguments, models
from sentence_transformers.evaluation import EmbeddingSimilarityEvaluator
from sentence_transformers.losses import MultipleNegativesRankingLoss
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from transformers import BertConfig, BertModel, PreTrainedTokenizerFast


def build(path="out-st-base"):
    vocabulary = {"[PAD]": 0, "[UNK]": 1, **{f"word{at}": at + 2 for at in range(2000)}}
    words = Tokenizer(WordLevel(vocabulary, unk_token="[UNK]"))
    words.pre_tokenizer = Whitespace()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, pad_token="[PAD]", unk_token="[UNK]", model_max_length=128)
    tokenizer.save_pretrained(path)
    BertModel(BertConfig(vocab_size=2002, hidden_size=128, num_hidden_layers=2, num_attention_heads=4, intermediate_size=512)).save_pretrained(path)
    transformer = models.Transformer(path, max_seq_length=128)
    return SentenceTransformer(modules=[transformer, models.Pooling(transformer.get_word_embedding_dimension())], device="cpu")


def main():
    model = build()
    texts = [json.loads(line)["text"] for line in open("data/reviews.jsonl")]
    pairs = Dataset.from_dict({"anchor": texts[:640], "positive": [" ".join(text.split()[::2]) for text in texts[:640]]})
    args = SentenceTransformerTrainingArguments(
        output_dir="out-st", num_train_epochs=1, per_device_train_batch_size=16, learning_rate=2e-5, warmup_ratio=0.1, eval_strategy="steps",
        eval_steps=20, save_strategy="no", logging_steps=10, report_to=[], use_cpu=True,
    )
    evaluator = EmbeddingSimilarityEvaluator(texts[700:732], texts[732:764], [at / 32 for at in range(32)])
    trainer = SentenceTransformerTrainer(model=model, args=args, train_dataset=pairs, loss=MultipleNegativesRankingLoss(model), evaluator=evaluator)
    trainer.train()
    model.save_pretrained("out-st/final")


if __name__ == "__main__":
    main()
