import torch
import wandb
from torch import nn

import isentrope
from isentrope.models.monitor_logs import JsonLines, WeightsAndBiases

text = torch.tensor(list(open("README.md", "rb").read()))
layer = nn.TransformerEncoderLayer(64, 4, 128, dropout=0, batch_first=True)
model = nn.Sequential(
    nn.Embedding(256, 64), nn.TransformerEncoder(layer, 2), nn.Linear(64, 256)
)
monitor = isentrope.Monitor(model)
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
run = wandb.init(project="attention", mode="offline", dir="results")
logs = WeightsAndBiases(run), JsonLines(f"results/{run.id}.jsonl")
for step in range(101):
    tokens = text[torch.randint(len(text) - 64, (16, 1)) + torch.arange(64)]
    hidden = torch.rand(tokens.shape) < 0.15
    with monitor.watch(step % 10 == 0):
        predicted = model(tokens.masked_fill(hidden, 0))
    loss = nn.functional.cross_entropy(predicted[hidden], tokens[hidden])
    optimizer.zero_grad(), loss.backward(), optimizer.step()
    for log in logs if monitor.latest else ():
        log(step, monitor.latest)
run.finish()
print(logs[1].path)
