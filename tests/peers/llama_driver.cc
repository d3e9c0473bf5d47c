// Runs a language model by llama.cpp's library, and prints its perplexity and greedy tokens as
// JSON.
//
//   llama_driver OPTION... MODEL TEXT CACHE THREADS
//
// Options, such as -fa on, are ignored: flash attention is on. The perplexity is that of the second
// half of the text's first 1,024 tokens. 50 greedy tokens continue them, each with the margin of
// its logit. Log lines go to stderr.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string>
#include <vector>

#include "ggml-backend.h"
#include "llama.h"

namespace {

constexpr int kTokens = 1024, kGreedy = 50;

class Model {
 public:
  Model(const char* path, const std::string& cache, int threads) {
    llama_model_params of_model = llama_model_default_params();
    of_model.n_gpu_layers = 0;
    model_ = llama_model_load_from_file(path, of_model);
    if (model_ == nullptr) throw std::runtime_error("no model");
    llama_context_params options = llama_context_default_params();
    options.n_ctx = 2 * kTokens;
    options.n_batch = kTokens;
    options.n_threads = options.n_threads_batch = threads;
    options.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_ENABLED;
    options.type_k = options.type_v = cache == "f32"    ? GGML_TYPE_F32
                                      : cache == "bf16" ? GGML_TYPE_BF16
                                                        : GGML_TYPE_F16;
    context_ = llama_init_from_model(model_, options);
    vocabulary_ = llama_model_get_vocab(model_);
  }

  std::vector<llama_token> tokens(const std::string& text) const {
    std::vector<llama_token> tokens(text.size());
    const int count = llama_tokenize(vocabulary_, text.data(), static_cast<int>(text.size()),
                                     tokens.data(), static_cast<int>(tokens.size()), true, false);
    if (count < kTokens) throw std::runtime_error("too short a text");
    tokens.resize(kTokens);
    return tokens;
  }

  // Computes the logits of all tokens, which continue those of earlier calls.
  void run(const std::vector<llama_token>& tokens) {
    const auto count = static_cast<int>(tokens.size());
    llama_batch batch = llama_batch_init(count, 0, 1);
    batch.n_tokens = count;
    for (int i = 0; i < count; ++i) {
      batch.token[i] = tokens[i];
      batch.pos[i] = position_++;
      batch.n_seq_id[i] = 1;
      batch.seq_id[i][0] = 0;
      batch.logits[i] = 1;
    }
    if (llama_decode(context_, batch) != 0) throw std::runtime_error("no logits");
    llama_batch_free(batch);
  }

  const float* logits(int token) const { return llama_get_logits_ith(context_, token); }
  int words() const { return llama_vocab_n_tokens(vocabulary_); }

 private:
  llama_model* model_;
  llama_context* context_;
  const llama_vocab* vocabulary_;
  int position_ = 0;
};

double loss(const float* logits, int words, llama_token next) {
  const double most = *std::max_element(logits, logits + words);
  double sum = 0;
  for (int word = 0; word < words; ++word) sum += std::exp(logits[word] - most);
  return std::log(sum) + most - logits[next];
}

struct Choice {
  llama_token token;
  double margin;  // of the largest logit over the second, relative to the largest
};

Choice greedy(const float* logits, int words) {
  const float* best = std::max_element(logits, logits + words);
  double second = -INFINITY;
  for (const float* logit = logits; logit < logits + words; ++logit)
    if (logit != best) second = std::max<double>(second, *logit);
  return {static_cast<llama_token>(best - logits), (*best - second) / std::abs(*best)};
}

void print_results(Model model, const std::string& text) {
  const std::vector<llama_token> tokens = model.tokens(text);
  model.run(tokens);
  double sum = 0;
  for (int i = kTokens / 2; i + 1 < kTokens; ++i)
    sum += loss(model.logits(i), model.words(), tokens[i + 1]);
  std::printf("{\"perplexity\": %.9g, \"greedy\": [", std::exp(sum / (kTokens / 2 - 1)));
  for (int i = 0; i < kGreedy; ++i) {
    const Choice choice = greedy(model.logits(-1), model.words());
    std::printf("%s[%d, %.3g]", i == 0 ? "" : ", ", choice.token, choice.margin);
    model.run({choice.token});
  }
  std::puts("]}");
}

}  // namespace

int main(int argc, char** argv) {
  try {
    char** last = argv + argc - 4;
    std::ifstream file(last[1]);
    std::string text(std::istreambuf_iterator<char>(file), {});
    text.resize(std::min<std::size_t>(text.size(), 32 * kTokens));
    ggml_backend_load_all();
    print_results(Model(last[0], last[2], std::atoi(last[3])), text);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
