"""Largest errors of timed systems against float64."""

import torch

ROWS = 1024  # queries whose dense weights are in memory at a time


def error_of(work, output, q, k, v, rule=None, rows=64):
    """Returns the largest error of the last rows of the first and last head, against float64.

    rule: factor on 1/sqrt(d) as a function of the number of keys that a row sees."""
    group, worst = work.heads // work.key_heads, 0.0
    for head in (0, work.heads - 1):
        heads = [x[-1, h].double() for x, h in ((q, head), (k, head // group), (v, head // group))]
        z = heads[0][-rows:] @ heads[1].T * work.dim**-0.5
        hidden = torch.ones_like(z).tril(work.keys - z.shape[0]) == 0 if work.causal else torch.zeros_like(z) == 1
        if rule is not None:
            z *= rule((~hidden).sum(-1, keepdim=True).double())
        z.masked_fill_(hidden, -torch.inf)
        wanted = z.softmax(-1) @ heads[2]
        worst = max(worst, (output[-1, head, -rows:].double() - wanted).abs().max().item())
    return worst


def gradient_error_of(work, gradients, q, k, v, upstream, rule=None, reads_entropy=False):
    """Returns the largest error of dq, dk and dv of the last head of the last sequence, against float64.

    rule: as in `error_of`. reads_entropy: the loss has the sum of entropies too."""
    q, k, v, upstream = (x[-1, -1].double() for x in (q, k, v, upstream))
    dq, dk, dv = torch.empty_like(q), torch.zeros_like(k), torch.zeros_like(v)
    place = torch.arange(work.keys, device=q.device)
    for start in range(0, work.queries, ROWS):
        rows = slice(start, start + ROWS)
        hidden = (place[None, :] > place[rows, None]) & work.causal
        factor = torch.full((len(q[rows]), 1), work.dim**-0.5, dtype=torch.float64, device=q.device)
        if rule is not None:
            factor *= rule((~hidden).sum(-1, keepdim=True).double())
        p = ((q[rows] @ k.T) * factor).masked_fill(hidden, -torch.inf).softmax(-1)
        dp = upstream[rows] @ v.T
        ds = p * (dp - (p * dp).sum(-1, keepdim=True))
        if reads_entropy:
            log_p = p.clamp_min(torch.finfo(p.dtype).tiny).log()
            ds -= p * (log_p - (p * log_p).sum(-1, keepdim=True))
        ds *= factor
        dq[rows] = ds @ k
        dk += ds.T @ q[rows]
        dv += p.T @ upstream[rows]
    return max((x[-1, -1].double() - want).abs().max().item() for x, want in zip(gradients, (dq, dk, dv)))
