// Lines of ISENTROPE_STATISTICS.

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/bindings/ggml/definition.h"
#include "tests/support/temporary_folder.h"

namespace isentrope {
namespace {

using nlohmann::json;

std::vector<json> lines_of(const std::filesystem::path& path) {
  std::istringstream text(read_file(path));
  std::vector<json> lines;
  for (std::string line; std::getline(text, line);) lines.push_back(json::parse(line));
  return lines;
}

TEST(HeadLog, HasEveryHeadOfEveryCall) {
  const TemporaryFolder folder;
  const Variable file("ISENTROPE_STATISTICS", folder / "heads.jsonl");
  const Problem problem{
      .queries = 20,
      .mask =
          [](std::int64_t, std::int64_t query, std::int64_t key) {
            return query == 3 || key > query + 50 || (query == 4 && key == 0) ? -INFINITY : 0.5f;
          },
      .sinks = true,
      .soft_cap = 20};
  const Library library;
  const Node node(problem);
  for (int call = 0; call < 2; ++call) ASSERT_EQ(node.compute(library), GGML_STATUS_SUCCESS);
  const std::vector<json> lines = lines_of(folder / "heads.jsonl");
  ASSERT_EQ(lines.size(), 8);
  for (std::int64_t head = 0; head < problem.heads; ++head) {
    double keys = 0, entropy = 0, max_logit = -INFINITY, first = 0;
    for (std::int64_t query = 0; query < problem.queries; ++query) {
      const DefinedRow row = row_by_definition(problem, node.get(), query, head, 0);
      keys += double(row.keys) / 19, entropy += row.entropy / 19;
      max_logit = std::max(max_logit, row.max_logit);
      if (row.keys > 0) first += row.weights[0] / 18;
    }
    const json& line = lines[static_cast<std::size_t>(4 + head)];
    EXPECT_EQ(line.at("module"), "cache_k_l12");
    EXPECT_EQ(line.at("layer"), 12);
    EXPECT_EQ(line.at("head"), head);
    EXPECT_EQ(line.at("step"), 2);
    EXPECT_EQ(line.at("tokens"), 20);
    EXPECT_NEAR(line.at("keys"), keys, 1e-4);
    EXPECT_NEAR(line.at("entropy"), entropy, 1e-3);
    EXPECT_NEAR(line.at("max_logit"), max_logit, 1e-2);
    EXPECT_NEAR(line.at("first_key_weight"), first, 1e-3 * first);
  }
}

TEST(HeadLog, HasNullWhereNoRowSeesAKey) {
  const TemporaryFolder folder;
  const Variable file("ISENTROPE_STATISTICS", folder / "heads.jsonl");
  const auto hidden = [](std::int64_t, std::int64_t, std::int64_t) { return -INFINITY; };
  const Library library;
  ASSERT_EQ(Node({.mask = hidden}).compute(library), GGML_STATUS_SUCCESS);
  for (const char* name : {"keys", "entropy", "max_logit", "first_key_weight"})
    EXPECT_TRUE(lines_of(folder / "heads.jsonl").front().at(name).is_null()) << name;
}

TEST(HeadLog, ThatCannotBeOpenedIsRefused) {
  const Variable file("ISENTROPE_STATISTICS", "/no/such/folder/heads.jsonl");
  EXPECT_EQ(Library().registry(), nullptr);
}

TEST(HeadLog, ThatTakesNoLinesFailsTheGraph) {
  const Variable file("ISENTROPE_STATISTICS", "/dev/full");
  const Library library;
  EXPECT_EQ(Node({}).compute(library), GGML_STATUS_FAILED);
}

}  // namespace
}  // namespace isentrope
