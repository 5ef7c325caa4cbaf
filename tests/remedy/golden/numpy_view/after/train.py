"""Heatmaps drawn in the loop."""
import math

import torch


class Heatmaps:
	"""Tabs, comments, and a name that is taken."""

	def __init__(self, sigma=1.5):
		self.sigma = sigma
		self.heat_np = None

	def __call__(self, points: torch.Tensor, size=32):
		heat = torch.zeros(
			points.shape[0], points.shape[1], size, size,  # one for each point
		)
		heat_array = heat.numpy()
		heat_np = size
		# every point in turn
		points_np = points.detach().cpu().numpy()
		for b in range(points.shape[0]):
			for k in range(points.shape[1]):
				cx, cy = float(points_np[b, k, 0].item()), points_np[b, k, 1].item()  # its centre
				for y in range(heat_np):
					for x in range(size):
						heat_array[b, k, y, x] = math.exp(-((x - cx) ** 2 + (y - cy) ** 2) / 4)  # drawn
		heat *= 2
		return heat
