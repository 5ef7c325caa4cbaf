import torch
import torch.nn as nn


class Self_Attn(nn.Module):
    """ Self attention Layer"""
    def __init__(self, in_dim=16):
        super().__init__()
        self.query_conv = nn.Conv2d(in_channels=in_dim, out_channels=in_dim//8, kernel_size=1)
        self.key_conv = nn.Conv2d(in_channels=in_dim, out_channels=in_dim//8, kernel_size=1)
        self.value_conv = nn.Conv2d(in_channels=in_dim, out_channels=in_dim, kernel_size=1)
        self.gamma = nn.Parameter(torch.ones(1))
        self.softmax = nn.Softmax(dim=-1) #

    def forward(self, x):
        m_batchsize, C, width, height = x.size()
        proj_query = self.query_conv(x).view(m_batchsize, -1, width*height).permute(0, 2, 1) # B X (N) X C
        proj_key = self.key_conv(x).view(m_batchsize, -1, width*height) # B X C x (*W*H)
        proj_value = self.value_conv(x).view(m_batchsize, -1, width*height) # B X C X N

        out = nn.functional.scaled_dot_product_attention(
            proj_query.unsqueeze(1),
            proj_key.transpose(-2, -1).unsqueeze(1),
            proj_value.transpose(-2, -1).unsqueeze(1),
            scale=1.0,
        ).squeeze(1).transpose(-2, -1).clone(memory_format=torch.contiguous_format)
        out = out.view(m_batchsize, C, width, height)

        out = self.gamma*out + x
        return out


def example():
    return Self_Attn(), (torch.randn(2, 16, 5, 6),)
