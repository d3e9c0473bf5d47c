// ModelConfig: the model, by the published names of its parts (docs/laboratory.md).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace isentrope::lab {

// Kind and place of norms, and the feed-forward block.
enum class ModelShape {
  roformer,  // Su et al. 2021: LayerNorm after each block, biases, GELU
  modern,    // as LLaMA: RMSNorm before each block and at the end, no biases, SwiGLU
};

// Distribution of the initial weights.
enum class Init {
  bert,     // normal with deviation 0.02, biases 0 (Devlin et al. 2018)
  pytorch,  // uniform within 1 / sqrt(inputs), biases too: torch.nn.Linear; embeddings as bert
};

enum class Positions {
  rope,          // Su et al. 2021
  rope_partial,  // RoPE on the first quarter of each head (GPT-NeoX)
  t5,            // learned bias by distance bucket (Raffel et al. 2019)
  alibi,         // fixed bias that falls with distance (Press et al. 2021)
  none,
};

enum class Objective {
  mlm,     // masked tokens, bidirectional
  causal,  // next token
};

struct ModelConfig {
  std::int64_t vocabulary = 0, layers = 0, width = 0, heads = 0;
  ModelShape shape = ModelShape::roformer;
  Init init = Init::bert;
  Positions positions = Positions::rope;
  Objective objective = Objective::mlm;
  bool embedding_norm = true;      // a norm after the embedding
  double dropout = 0;              // after the embedding and each block
  std::int64_t train_length = 64;  // largest distance of t5

  [[nodiscard]] std::int64_t head_dim() const { return width / heads; }
};

// Throws Error unless numbers are positive, width / heads even (for rotation), dropout in [0, 1).
void validate(const ModelConfig& config);

// Names of an option's values, in the order of the enumeration: "rope", "rope-partial", ...
template <typename Choice>
[[nodiscard]] std::vector<std::string> names_of();

template <typename Choice>
[[nodiscard]] std::string name_of(Choice choice) {
  return names_of<Choice>()[static_cast<std::size_t>(choice)];
}

}  // namespace isentrope::lab
