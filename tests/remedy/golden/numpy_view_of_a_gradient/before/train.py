import torch


def generate_targets(cells, offsets, grid):
    heatmaps = torch.zeros(len(cells), 2, *grid)
    for b in range(len(cells)):
        for k in range(2):
            centre = cells[b, k] + offsets[b, k]
            for y in range(grid[0]):
                for x in range(grid[1]):
                    square = (x - centre[0]) ** 2 + (y - centre[1]) ** 2
                    heatmaps[b, k, y, x] = torch.exp(-square / 2)
    return heatmaps
