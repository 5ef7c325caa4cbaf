"""peft: LoRA on a small GPT-2 in a loop of our own; the held-out part is looked at every four steps."""

import torch
from peft import LoraConfig, TaskType, get_peft_model
from torch.utils.data import DataLoader
from transformers import GPT2Config, GPT2LMHeadModel, get_linear_schedule_with_warmup


def evaluate(model, loader):
    model.eval()
    total = 0.0
    for batch in loader:
        with torch.no_grad():
            outputs = model(input_ids=batch, labels=batch)
        total += outputs.loss.detach().float()
    model.train()
    return torch.exp(total / len(loader))


def main():
    torch.manual_seed(0)
    base = GPT2LMHeadModel(GPT2Config(vocab_size=500, n_positions=64, n_embd=128, n_layer=2, n_head=4))
    config = LoraConfig(task_type=TaskType.CAUSAL_LM, r=8, lora_alpha=32, lora_dropout=0.1, target_modules=["c_attn"], fan_in_fan_out=True)
    model = get_peft_model(base, config)
    model.print_trainable_parameters()
    tokens = torch.randint(0, 500, (2000, 64))
    train_dataloader = DataLoader(tokens[:1600], batch_size=8, shuffle=True)
    eval_dataloader = DataLoader(tokens[1600:1680], batch_size=8)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    lr_scheduler = get_linear_schedule_with_warmup(optimizer, num_warmup_steps=10, num_training_steps=len(train_dataloader))
    for epoch in range(1):
        model.train()
        for step, batch in enumerate(train_dataloader):
            outputs = model(input_ids=batch, labels=batch)
            loss = outputs.loss
            loss.backward()
            optimizer.step()
            lr_scheduler.step()
            optimizer.zero_grad()
            if step % 4 == 0:
                print(f"{epoch=}: {step=} {loss.item()=:.3f} ppl={evaluate(model, eval_dataloader):.2f}")
    model.save_pretrained("out-peft")


if __name__ == "__main__":
    main()
