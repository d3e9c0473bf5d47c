import sys
from pathlib import Path

import torch
import transformers

import isentrope.hf

if len(sys.argv) != 4:
    sys.exit("usage: generate_longer.py MODEL.gguf TEXT CALIBRATION.json")
model_file, text, calibration = map(Path, sys.argv[1:])
folder, file = model_file.parent, model_file.name
tokenizer = transformers.AutoTokenizer.from_pretrained(folder, gguf_file=file)
model = transformers.AutoModelForCausalLM.from_pretrained(
    folder,
    gguf_file=file,
    dtype=torch.bfloat16,
    attn_implementation="isentrope",
)
trained = model.config.max_position_embeddings
tokens = tokenizer(text.read_text(), return_tensors="pt").input_ids
tokens = tokens[:, : trained * 3 // 2]


@torch.no_grad()
def loss(length):
    logits = model(tokens[:, :length], logits_to_keep=1025).logits[0, :-1]
    last = tokens[0, length - 1024 : length]
    return torch.nn.functional.cross_entropy(logits.float(), last).item()


lengths = trained + 1024, trained * 3 // 2
before = {length: loss(length) for length in lengths}
isentrope.hf.apply(model, calibration)
for length, was in before.items():
    print(f"tokens {length - 1024} to {length}: {was:.2f} nats "
          f"as the model is, {loss(length):.2f} with the calibration")
longer = model.generate(tokens, max_new_tokens=20, do_sample=False)
print(tokenizer.decode(longer[0, tokens.shape[1] :]))
