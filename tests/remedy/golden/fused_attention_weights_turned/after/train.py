import torch
import torch.nn as nn
import torch.nn.functional as F


class AttnBlock(nn.Module):
    def __init__(self, c=32):
        super().__init__()
        self.q, self.k, self.v = nn.Conv2d(c, c, 1), nn.Conv2d(c, c, 1), nn.Conv2d(c, c, 1)
    def forward(self, x):
        q, k, v = self.q(x), self.k(x), self.v(x)
        # compute attention
        b,c,h,w = q.shape
        q = q.reshape(b,c,h*w)
        q = q.permute(0,2,1)   # b,hw,c
        k = k.reshape(b,c,h*w) # b,c,hw

        # attend to values
        v = v.reshape(b,c,h*w)
        h_ = F.scaled_dot_product_attention(
            q.unsqueeze(1), k.transpose(-2, -1).unsqueeze(1), v.transpose(-2, -1).unsqueeze(1),
            scale=int(c)**(-0.5),
        ).squeeze(1).transpose(-2, -1).clone(memory_format=torch.contiguous_format)     # b, c,hw (hw of q) h_[b,c,j] = sum_i v[b,c,i] w_[b,i,j]
        h_ = h_.reshape(b,c,h,w)
        return x + h_


def example():
    return AttnBlock(), (torch.randn(2, 32, 5, 6),)
