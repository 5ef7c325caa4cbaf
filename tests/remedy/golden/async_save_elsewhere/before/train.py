import torch
from helpers import accelerator

model = torch.nn.Linear(2, 2)
accelerator.save(model.state_dict(), "last.pt")
torch.save(model.state_dict(), "old.pt", _use_new_zipfile_serialization=False)
