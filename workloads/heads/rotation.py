"""Quaternions (w, x, y, z) and rotation matrices, either way by one constant table.

With a unit quaternion q, the nine entries of its matrix are sums of the sixteen products of q with itself,
and four times those products are the same sums of the nine entries, plus the identity: TABLE holds the signs.
"""

import torch


def _table():
    """(16, 9): how often q[i] * q[j] (row 4 i + j) goes into R[k, l] (column 3 k + l)."""
    table = torch.zeros(4, 4, 3, 3, dtype=torch.float64)
    for axis in range(3):
        for entry in range(3):
            table[1 + entry, 1 + entry, axis, axis] = 1.0 if entry == axis else -1.0
        table[0, 0, axis, axis] = 1.0
        second, third = (axis + 1) % 3, (axis + 2) % 3
        for row, column, sign in ((second, third, -1.0), (third, second, 1.0)):
            table[0, 1 + axis, row, column] = table[1 + axis, 0, row, column] = sign
            table[1 + second, 1 + third, row, column] = table[1 + third, 1 + second, row, column] = 1.0
    return table.reshape(16, 9)


def _product_table():
    """(16, 4): how often a[i] * b[j] (row 4 i + j) goes into (a b)[k]: i j = k, j k = i, k i = j."""
    table = torch.zeros(4, 4, 4, dtype=torch.float64)
    for axis in range(4):
        table[0, axis, axis] = table[axis, 0, axis] = 1.0
        table[axis, axis, 0] = 1.0 if axis == 0 else -1.0
    for first, second, third in ((1, 2, 3), (2, 3, 1), (3, 1, 2)):
        table[first, second, third], table[second, first, third] = 1.0, -1.0
    return table.reshape(16, 4)


TABLE, PRODUCT = _table(), _product_table()


def to_entries(quaternions):
    """(4, N) of any length but zero to the entries (9, N) of rotation matrices, row by row."""
    products = (quaternions[:, None] * quaternions).flatten(0, 1)
    return TABLE.to(quaternions).t() @ products / quaternions.square().sum(0)


def through_entries(quaternions, entries, of_entries):
    """Gradients (4, N) of quaternions from those of their ``to_entries`` (9, N)."""
    of_products = (TABLE.to(entries) @ of_entries).view(4, 4, -1)
    along = (of_products * quaternions).sum(1) - (of_entries * entries).sum(0) * quaternions
    return 2 * along / quaternions.square().sum(0)


def to_matrix(quaternions):
    """(..., 4) of any length but zero to rotation matrices (..., 3, 3)."""
    entries = to_entries(quaternions.reshape(-1, 4).t())
    return entries.t().reshape(*quaternions.shape[:-1], 3, 3)


def from_matrix(matrices):
    """Rotation matrices (..., 3, 3) to unit quaternions (..., 4): the row of q q^T with the largest entry."""
    entries = matrices.flatten(-2)
    products = (entries @ TABLE.to(entries).T).unflatten(-1, (4, 4)) + torch.eye(4).to(entries)
    longest = products.diagonal(dim1=-2, dim2=-1).argmax(-1)
    rows = torch.take_along_dim(products, longest[..., None, None], dim=-2).squeeze(-2)
    return torch.nn.functional.normalize(rows, dim=-1)


def multiply(first, second):
    """The rotation ``second``, then ``first``: quaternion products (..., 4)."""
    products = (first[..., :, None] * second[..., None, :]).flatten(-2)
    return products @ PRODUCT.to(products)
