"""The same where some of the weights are dropped: the fused call draws which ones itself."""

from __future__ import annotations

from hotloop.remedy.remedy import Remedy

REMEDY = Remedy(
    id="fused-attention-dropout",
    summary="Call scaled_dot_product_attention also where attention weights are dropped.",
    effect="semantic",
    alters="as many weights are dropped as before, but others: random numbers are drawn in another way",
    answers=("device/attention-not-fused",),
    source="hotloop.remedy.source.attention.fusing:fused_attention_dropout",
    words=(
        "torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=..., "
        "dropout_p=self.dropout.p if self.training else 0.0, scale=...)"
    ),
)
