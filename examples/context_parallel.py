#!/usr/bin/env python3
"""Trains a small Llama on sequences that are split over ranks: FSDP2 and
context parallel on one mesh.

    torchrun --nproc-per-node 4 examples/context_parallel.py data/king-james.txt

4 ranks form a 2 x 2 mesh. Rows have different sequences, and the ranks of a row
share each sequence. The weights are sharded over the ranks of a row, and every
row has a copy. On GPUs use the group "nccl" and a mesh of "cuda".
"""

import sys

import torch
import torch.distributed as dist
import transformers
from torch.distributed import init_device_mesh
from torch.distributed.fsdp import fully_shard

import isentrope.hf

LENGTH, BATCH = 512, 2


def train(text: bytes, steps: int) -> list[float]:
    """Returns the loss at each step: the mean over all sequences, the same on
    every rank."""
    ranks = dist.get_world_size()
    mesh = init_device_mesh("cpu", (ranks // 2, 2), mesh_dim_names=("dp", "cp"))
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=256, hidden_size=128, intermediate_size=256, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, attn_implementation="isentrope",
    )  # fmt: skip
    model = transformers.AutoModelForCausalLM.from_config(config)
    isentrope.hf.set_rule(model, "entropy_invariant(base=512)")
    isentrope.hf.context_parallel(model, mesh["cp"])
    for layer in model.model.layers:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)

    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    corpus = torch.frombuffer(bytearray(text), dtype=torch.uint8).long()
    choose = torch.Generator().manual_seed(mesh.get_local_rank("dp"))
    losses = []
    for _ in range(steps):
        begins = torch.randint(len(corpus) - LENGTH, (BATCH,), generator=choose).tolist()
        tokens = torch.stack([corpus[begin : begin + LENGTH] for begin in begins])
        # Every rank of a row passes whole sequences and computes its part.
        loss = model(input_ids=tokens, labels=tokens).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        total = loss.detach().clone()
        dist.all_reduce(total)
        losses.append(total.item() / ranks)
    return losses


def main() -> None:
    if len(sys.argv) != 2 or not dist.is_torchelastic_launched():
        sys.exit(f"usage: torchrun --nproc-per-node 4 {__file__} TEXT")
    dist.init_process_group("gloo")
    with open(sys.argv[1], "rb") as corpus:
        losses = train(corpus.read(), steps=100)
    if dist.get_rank() == 0:
        print(f"loss {losses[0]:.3f} at first, {sum(losses[-10:]) / 10:.3f} in the last ten steps")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
