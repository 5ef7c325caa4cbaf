"""Attention by hand as scaled_dot_product_attention.

No live form: a product and a softmax are met one by one.
"""

from __future__ import annotations

from hotloop.remedy.remedy import Remedy

REMEDY = Remedy(
    id="fused-attention",
    summary="Call scaled_dot_product_attention instead of writing softmax(q @ k.T) @ v out.",
    effect="numeric",
    alters=(
        "sums are taken in another order, and values differ in the last bits; a row that -inf masks whole "
        "gives zeros, no longer NaN"
    ),
    answers=("device/attention-not-fused",),
    source="hotloop.remedy.source.attention.fusing:fused_attention",
    rewrites=True,
    words=(
        "torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=..., scale=...); a mask of "
        "truth values is True where a key takes part; is_causal=True instead of a triangle"
    ),
)
