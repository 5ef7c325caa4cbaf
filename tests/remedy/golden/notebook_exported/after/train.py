#!/usr/bin/env python
# coding: utf-8

# In[1]:


import torch
from torch.utils.data import DataLoader

torch.backends.cudnn.benchmark = True


# In[2]:


loader = DataLoader(data, batch_size=8, num_workers=4)

