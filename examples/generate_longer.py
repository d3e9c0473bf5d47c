import sys
from pathlib import Path

import torch
import transformers

import isentrope.hf

model_file, text, calibration = map(Path, sys.argv[1:])
where = {"pretrained_model_name_or_path": model_file.parent, "gguf_file": model_file.name}
tokenizer = transformers.AutoTokenizer.from_pretrained(**where)
model = transformers.AutoModelForCausalLM.from_pretrained(**where, attn_implementation="isentrope", dtype=torch.bfloat16)
length, judged = model.config.max_position_embeddings * 3 // 2, 1024
tokens = tokenizer(text.read_text(), return_tensors="pt").input_ids[:, :length]


@torch.no_grad()
def loss():
    logits = model(tokens, logits_to_keep=judged + 1).logits[0, :-1].float()
    return torch.nn.functional.cross_entropy(logits, tokens[0, -judged:]).item()


print(f"loss of tokens {length - judged} to {length}: {loss():.2f} as the model is,", end=" ")
isentrope.hf.apply(model, calibration)
print(f"{loss():.2f} with the calibration")
generated = model.generate(tokens, max_new_tokens=20, do_sample=False)
print(tokenizer.decode(generated[0, tokens.shape[1] :]))
