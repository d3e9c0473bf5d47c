import torch

import isentrope.hf

SIZE, CHUNK = 512, 64  # entries of a key head, and how many more until a cut


def kept(received):
    """Returns the entries to keep: the last and, by head, the heaviest."""
    heaviest = received[:, :-CHUNK].topk(SIZE - CHUNK, 1).indices.sort(1).values
    last = torch.arange(-CHUNK, 0) + received.shape[1]
    return torch.cat([heaviest, last.expand(len(received), -1)], 1)


@torch.no_grad()
def step(model, tokens, first, cache, sums):
    """Returns logits of tokens from position `first` on. sums: {} at first."""
    at = torch.arange(first, first + len(tokens))[None]
    with isentrope.hf.record("received") as records:
        output = model(tokens[None], position_ids=at, past_key_values=cache)
    for index, (layer, record) in enumerate(zip(cache.layers, records)):
        heads, keys = layer.keys.shape[1:3]
        received = record.received[0].unflatten(0, (heads, -1)).mean(1)
        received[:, : keys - len(tokens)] += sums.get(index, 0)
        if keys >= SIZE + CHUNK:
            rows = kept(received)
            received = received.take_along_dim(rows, 1)
            rows = rows[None, :, :, None]
            layer.keys = layer.keys.take_along_dim(rows, 2)
            layer.values = layer.values.take_along_dim(rows, 2)
        sums[index] = received
    return output.logits[0]
