import torch
import torch.nn as nn
import torch.nn.functional as F


class GAT(nn.Module):
    def __init__(self, i=8, o=8):
        super().__init__()
        self.W = nn.Parameter(torch.randn(i, o))
        self.a = nn.Parameter(torch.randn(2 * o, 1))
        self.o = o
    def forward(self, h, adj):
        Wh = torch.mm(h, self.W)
        Wh1 = torch.matmul(Wh, self.a[:self.o, :])
        Wh2 = torch.matmul(Wh, self.a[self.o:, :])
        e = F.leaky_relu(Wh1 + Wh2.T, 0.2)
        zero_vec = -9e15 * torch.ones_like(e)
        attention = torch.where(adj > 0, e, zero_vec)
        attention = F.softmax(attention, dim=1)
        h_prime = torch.matmul(attention, Wh)
        return F.elu(h_prime)


def example():
    return GAT(), (torch.randn(5, 8), torch.eye(5) + torch.rand(5, 5).round())
