import sys
from pathlib import Path

import torch
import transformers

import isentrope.hf

model_file, text, calibration = map(Path, sys.argv[1:])
where = {"pretrained_model_name_or_path": model_file.parent, "gguf_file": model_file.name}
tokenizer = transformers.AutoTokenizer.from_pretrained(**where)
model = transformers.AutoModelForCausalLM.from_pretrained(**where, attn_implementation="isentrope", dtype=torch.bfloat16)
trained = model.config.max_position_embeddings
tokens = tokenizer(text.read_text(), return_tensors="pt").input_ids[:, : trained * 3 // 2]


@torch.no_grad()
def loss(length):
    logits = model(tokens[:, :length], logits_to_keep=1025).logits[0, :-1].float()
    return torch.nn.functional.cross_entropy(logits, tokens[0, length - 1024 : length]).item()


before = {length: loss(length) for length in (trained + 1024, trained * 3 // 2)}
isentrope.hf.apply(model, calibration)
for length, was in before.items():
    print(f"tokens {length - 1024} to {length}: {was:.2f} nats as the model is, {loss(length):.2f} with the calibration")
print(tokenizer.decode(model.generate(tokens, max_new_tokens=20, do_sample=False)[0, tokens.shape[1] :]))
