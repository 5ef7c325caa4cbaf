import matplotlib.pyplot as plt
import torch


def main():
    for i, batch in enumerate(loader):
        loss = model(batch)
        loss.backward()
        fig, axes = plt.subplots(1, 4)
        shown = batch[:4].permute(0, 2, 3, 1).cpu()
        for ax, image in zip(axes, shown):
            ax.imshow(image)
            ax.axis('off')
        # to look at
        writer.add_figure('samples', fig, i)
        plt.close(fig)
        losses.append(loss.item())
        writer.add_image('first', batch[0], i)


if __name__ == '__main__':
    main()
