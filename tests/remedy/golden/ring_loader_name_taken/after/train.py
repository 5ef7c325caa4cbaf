import torch
from yaml import Loader
import hotloop.feed

loader = hotloop.feed.Loader(data)
