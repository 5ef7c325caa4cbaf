import torch
from torch.utils.tensorboard import SummaryWriter


def main():
	writer = SummaryWriter()
	for epoch in range(3):
		bar = tqdm(enumerate(loader), desc='steps')
		for i, batch in bar:
			loss = model(batch)
			loss.backward()
			if i % 10 == 0:
				writer.add_scalar('train/loss', loss.item(), epoch + i / len(loader))
				logger.info('loss %.3f', loss.item())


if __name__ == '__main__':
    main()
