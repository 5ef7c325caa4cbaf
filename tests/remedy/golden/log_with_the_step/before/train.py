import torch
from torch.utils.tensorboard import SummaryWriter


def main():
    writer = SummaryWriter()
    global_step = 0
    for epoch in range(3):
        for x, y in loader:
            loss = model(x, y)
            loss.backward()
            # what is looked at
            writer.add_scalar('train/loss', loss.item(), global_step)

            # and what drives it
            writer.add_scalar(
                'train/lr',
                optimizer.param_groups[0]['lr'],
                global_step=global_step,
            )
            norm = total_norm(model)
            writer.add_scalar('train/norm', norm, global_step)  # of the gradients
            global_step += 1
        writer.add_scalar('val/loss', evaluate(model), epoch)


if __name__ == '__main__':
    main()
