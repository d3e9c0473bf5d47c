"""Systems to time on a GPU: Isentrope, torch's, and usual ways to compute the entropy of rows."""

import math

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

import isentrope
from isentrope.gpu.arguments import TERMS_OF

BLOCK = 512  # queries whose dense weights are in memory at a time
BASE = 512
SINGLE = [name for name, terms in TERMS_OF.items() if terms]  # every pass has lse


def backward_of(work, run, q, k, v, upstream):
    """Returns the call with a backward pass if the work has one: the output, followed by the gradients. A double gradient
    is also a backward pass of these."""
    if not work.kind.endswith("gradient"):
        return run
    leaves = [x.requires_grad_() for x in (q, k, v)]

    def both():
        output, twice = run(), work.kind == "double gradient"
        gradients = torch.autograd.grad(output, leaves, upstream, create_graph=twice)
        if twice:
            torch.autograd.grad(gradients, leaves, [x.detach() for x in leaves])
        return output, *(x.detach() for x in gradients)

    return both


def in_pages(k, v, page):
    """Returns the same keys and values in pages in a random order, their block table, and the keys of each sequence."""
    batch, _, keys, _ = k.shape
    order = torch.randperm(batch * keys // page, generator=torch.Generator().manual_seed(1)).to(k.device)
    pages = (x.unflatten(2, (-1, page)).transpose(1, 2).flatten(0, 1)[order] for x in (k, v))
    table, used = order.argsort().view(batch, -1).int(), torch.full((batch,), keys, dtype=torch.int32, device=k.device)
    return *pages, table, used


class Isentrope:
    """Isentrope with all statistics, none, or one, given by its name."""

    def __init__(self, statistics):
        self.statistics = statistics
        name = statistics if isinstance(statistics, str) else None if statistics else "lse alone"
        self.name = f"isentrope, {name}" if name else "isentrope"

    def reads_entropy(self, work):
        """Returns whether the loss of a backward pass reads the entropy."""
        return work.kind == "entropy gradient" and bool(self.statistics)

    def prepare(self, work, q, k, v, upstream):
        if isinstance(self.statistics, str) and work.kind != "statistics":
            return None
        if self.reads_entropy(work):
            return self.with_entropy(work, q, k, v, upstream)
        wanted = [self.statistics] if isinstance(self.statistics, str) else self.statistics
        function, cache = isentrope.gpu.attention, (k, v)
        if work.page:
            function, cache = isentrope.gpu.decode, in_pages(k, v, work.page)

        def run():
            result = function(q, *cache, causal=work.causal, return_stats=wanted)
            return result[0] if wanted else result

        return backward_of(work, run, q, k, v, upstream)

    def with_entropy(self, work, q, k, v, upstream):
        """Returns both passes for a loss of the output and of the sum of entropies."""
        leaves, ones = [x.requires_grad_() for x in (q, k, v)], q.new_ones(q.shape[:-1], dtype=torch.float32)

        def both():
            output, statistics = isentrope.gpu.attention(q, k, v, causal=work.causal, return_stats=["entropy"])
            return output, *torch.autograd.grad([output, statistics.entropy], leaves, [upstream, ones])

        return both


class Sdpa:
    """scaled_dot_product_attention by one of torch's own kernels."""

    def __init__(self, name, backend):
        self.name, self.backend = name, backend

    def prepare(self, work, q, k, v, upstream):
        if work.kind == "entropy":
            return None
        group = work.heads != work.key_heads

        def run():
            with sdpa_kernel(self.backend):
                return scaled_dot_product_attention(q, k, v, is_causal=work.causal, enable_gqa=group)

        return backward_of(work, run, q, k, v, upstream)


class Flex:
    """FlexAttention with entropy_invariant as its score_mod, compiled if there is a GPU. It is used for softmax scales
    other than 1/sqrt(d), so its error is that of a call with this rule."""

    name = "torch FlexAttention"
    options = None

    @staticmethod
    def rule(n):
        """Returns the rule's factor on 1/sqrt(d) for a row that sees n keys."""
        return n.log() / math.log(BASE)

    def prepare(self, work, q, k, v, upstream):
        if work.kind == "entropy":
            return None
        from torch.nn.attention.flex_attention import create_block_mask, flex_attention

        attention = flex_attention if q.device.type == "cpu" else torch.compile(flex_attention)
        shift = work.keys - work.queries
        mask = None
        if work.causal:
            mask = create_block_mask(
                lambda b, h, i, j: i + shift >= j, None, None, work.queries, work.keys, device=q.device
            )

        def scaled(score, b, h, i, j):
            n = i + shift + 1 if work.causal else torch.full_like(i, work.keys)
            return score * self.rule(n.float())

        def run():
            group = work.heads != work.key_heads
            return attention(q, k, v, score_mod=scaled, block_mask=mask, enable_gqa=group, kernel_options=self.options)

        return backward_of(work, run, q, k, v, upstream)


class FlexFlash(Flex):
    """FlexAttention with FlashAttention's kernels, which needs a recent torch and that package."""

    name = "torch FlexAttention, FLASH"
    options = {"BACKEND": "FLASH"}

    def prepare(self, work, q, k, v, upstream):
        return super().prepare(work, q, k, v, upstream) if q.device.type != "cpu" else None


class DenseEntropy:
    """Softmax of a block of rows at a time, and its entropy: the way without a fused kernel."""

    name = "torch, dense in blocks"

    def prepare(self, work, q, k, v, upstream):
        if work.kind != "entropy":
            return None

        def run():
            outputs = []
            for start in range(0, work.queries, BLOCK):
                z = (q[:, :, start : start + BLOCK] @ k.transpose(-2, -1)).float() * work.dim**-0.5
                if work.causal:
                    z = z.masked_fill(torch.ones_like(z, dtype=torch.bool).triu(start + 1), -torch.inf)
                p = z.softmax(-1)
                torch.special.entr(p).sum(-1)
                outputs.append(p.to(v.dtype) @ v)
            return torch.cat(outputs, 2)

        return run


class TwoPasses:
    """Entropy = lse - E[z], with E[z] from attention to the keys: a second pass of a kernel without statistics."""

    name = "torch, two passes"

    def prepare(self, work, q, k, v, upstream):
        if work.kind != "entropy" or q.device.type == "cpu":
            return None

        def run():
            scale = work.dim**-0.5
            output, lse, *_ = torch.ops.aten._scaled_dot_product_flash_attention(q, k, v, 0.0, work.causal, scale=scale)
            mean, *_ = torch.ops.aten._scaled_dot_product_flash_attention(q, k, k, 0.0, work.causal, scale=scale)
            lse - scale * (q.float() * mean.float()).sum(-1)
            return output

        return run


def small_systems():
    """Returns the systems of calls whose time on the host counts, and of decode steps."""
    return [Isentrope(False), Isentrope(True), Sdpa("torch flash", SDPBackend.FLASH_ATTENTION)]


def all_systems():
    return [
        Isentrope(True), Isentrope(False), *map(Isentrope, SINGLE), Sdpa("torch flash", SDPBackend.FLASH_ATTENTION),
        Sdpa("torch cuDNN", SDPBackend.CUDNN_ATTENTION), Flex(), FlexFlash(), DenseEntropy(),
        TwoPasses(),
    ]  # fmt: skip
