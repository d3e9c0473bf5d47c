#include "tools/lab/material.h"

#include <fmt/format.h>

#include <filesystem>

#include "tools/lab/examples.h"
#include "tools/lab/random.h"

namespace isentrope::lab {
namespace {

std::unique_ptr<Tokenizer> make_tokenizer(const ExperimentOptions& options, const RunFolder& folder,
                                          std::string_view training, Progress& progress) {
  if (!options.tokenizer.empty()) return load_tokenizer(options.tokenizer);
  if (options.vocabulary == 0) return byte_tokenizer();
  if (folder.holds_this_run() && std::filesystem::exists(folder.tokenizer()))
    return load_tokenizer(folder.tokenizer().string());
  progress.now(fmt::format("training a tokenizer of {} pieces", options.vocabulary));
  return train_tokenizer(training, options.vocabulary);
}

}  // namespace

double Material::bytes_per_token(Part which) const {
  const Parts<std::string_view> text = split_text(corpus.text, test_share);
  const std::size_t bytes = which == Part::test ? text.test.size() : text.validation.size();
  return static_cast<double>(bytes) / static_cast<double>(part(which).size());
}

Material prepare_material(const ExperimentOptions& options, const RunFolder& folder,
                          Progress& progress) {
  Material material;
  material.corpus = read_corpus(options.corpus);
  material.test_share = options.test_share;
  const Parts<std::string_view> text = split_text(material.corpus.text, options.test_share);
  material.tokenizer = make_tokenizer(options, folder, text.training, progress);
  const Tokenizer& tokenizer = *material.tokenizer;
  material.parts = {tokenizer.encode(text.training), tokenizer.encode(text.validation),
                    tokenizer.encode(text.test)};
  const Objective objective = options.model.objective;
  require_windows(material.parts, window_tokens(objective, options.train_length),
                  window_tokens(objective, options.lengths.back()));
  for (const auto* part :
       {&material.parts.training, &material.parts.validation, &material.parts.test}) {
    for (const Token token : *part) {
      material.fingerprint = scatter(material.fingerprint ^ static_cast<std::uint64_t>(token));
    }
    material.fingerprint = scatter(material.fingerprint + part->size());
  }
  return material;
}

}  // namespace isentrope::lab
