// Rules as JSON, and the rules that shipped models' config.json files imply.
#include "isentrope/config/scale_rule_json.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "isentrope/error.h"
#include "tests/support/message_of.h"
#include "tests/support/rules_of_every_form.h"
#include "tests/support/words.h"

namespace isentrope {
namespace {

TEST(ScaleRuleJson, RoundTrips) {
  for (const ScaleRule& rule : rules_of_every_form())
    EXPECT_EQ(scale_rule_from_json(to_json(rule)), rule) << to_json(rule);
}

TEST(ScaleRuleJson, Forms) {
  EXPECT_EQ(to_json(ScaleRule::entropy_invariant(512)),
            R"({"rule":"entropy_invariant","base":512,"length":"visible"})");
  EXPECT_EQ(to_json(ScaleRule::ssmax({0.5, 1})),
            R"({"rule":"ssmax","s":[0.5,1],"b":0,"length":"visible"})");
  EXPECT_EQ(to_json(ScaleRule::dual_chunk(64) * ScaleRule::yarn_mscale()),
            R"({"product":[{"rule":"dual_chunk","train_len":64,"alpha":0.1,"length":"total"},)"
            R"({"rule":"yarn_mscale","factor":4,"mscale":1}]})");
  EXPECT_EQ(to_json(ScaleRule::parse("logn(64,length=100)")),
            R"({"rule":"logn","train_len":64,"length":100})");
  EXPECT_EQ(scale_rule_from_json(R"({"rule": "logn"})"), ScaleRule::logn());
  EXPECT_EQ(scale_rule_from_json("\"logn(4096)\""), ScaleRule::logn(4096));
  EXPECT_EQ(scale_rule_from_json(R"({"rule": "logn", "scale_bias": false})"), ScaleRule::logn());
}

TEST(ScaleRuleJson, OfMembersOfOneNameTheLastOneCounts) {
  EXPECT_EQ(
      scale_rule_from_json(R"({"rule":"sqrt","train_len":[1,2],"rule":"logn","train_len":9})"),
      ScaleRule::logn(9));
}

TEST(ScaleRuleJson, IsQuotedAsItWasRead) {
  EXPECT_EQ(message_of([] {
              return scale_rule_from_json(
                  R"({"rule":"logn","train_len":{"a":[1,2.0,"\u00e9"],"b":null}})");
            }),
            "[scale_rule_from_json] train_len must be a number, numbers, a name or a boolean; "
            R"(got {"a":[1,2.0,"\u00e9"],"b":null})");
  const auto nested = [](std::size_t deep) {
    return std::string(deep, '[') + std::string(deep, ']');
  };
  for (const std::size_t deep : {64, 65}) {
    const std::string message = message_of([&] { return scale_rule_from_json(nested(deep)); });
    EXPECT_FALSE(message.empty());
    EXPECT_EQ(has(message, "nested too deeply"), deep > 64);
  }
}

TEST(ScaleRuleJson, RejectsWhatIsNoRule) {
  for (const char* text :
       {"", "{", "[]", "1", "{}", R"({"rule":1})", R"({"rule":"logn","train_len":null})",
        R"({"rule":"logn","length":""})", R"({"rule":"logn(2","train_len":2})",
        R"({"rule":"logn","a=1,b":2})", R"({"rule":"logn","length":"1)*logn("})",
        R"({"product":[]})", R"({"product":[{"rule":"logn"}],"rule":"logn"})",
        R"({"rule":"ssmax","s":["a"]})"}) {
    EXPECT_THROW((void)scale_rule_from_json(text), Error) << text;
  }
  EXPECT_THROW((void)scale_rule_from_json(std::string(100000, '[')), Error);
}

TEST(ModelScale, StandardWithoutAnyOfTheKeys) {
  const ModelScale model =
      scale_of_config(R"({"hidden_size": 4096, "num_attention_heads": 32, "model_type": "llama"})");
  EXPECT_EQ(model.rule, ScaleRule::standard());
  EXPECT_EQ(model.dim, 128);
  EXPECT_EQ(model.layers, "all");
  EXPECT_TRUE(model.keys.empty());
}

TEST(ModelScale, FamiliesAreKnownByTheirWholeName) {
  const auto is_known = [](const std::string& type) {
    return scale_of_config(R"({"model_type": ")" + type + "\"}").known;
  };
  for (const char* name :
       {"blenderbot-small", "modernbert-decoder", "openai-gpt", "vision-text-dual-encoder",
        "xlm-roberta-xl", "blip-2", "zoedepth", "llama"})
    EXPECT_TRUE(is_known(name)) << name;
  for (const char* part : {"small", "gpt", "xl", "blenderbot-", "openai-", "encoder", "made_up", "",
                           "llam", "lama", "llama ", "gemma2 gemma3"})
    EXPECT_FALSE(is_known(part)) << part;
}

TEST(ModelScale, Llama4TunesLayersWithoutRotaryEmbedding) {
  const ModelScale model =
      scale_of_config(R"({"text_config": {"attn_temperature_tuning": true, "floor_scale": 8192,
                                               "attn_scale": 0.1, "head_dim": 128}})");
  EXPECT_EQ(model.rule, ScaleRule::attn_temperature_tuning());
  EXPECT_EQ(model.elsewhere, ScaleRule::standard());
  EXPECT_EQ(model.layers, "without rotary embedding");
  EXPECT_EQ(model.keys.front(), "text_config.attn_temperature_tuning");
}

TEST(ModelScale, DeepSeekSquaresMscaleAllDim) {
  const ModelScale model = scale_of_config(
      R"({"model_type": "deepseek_v3", "qk_nope_head_dim": 128, "qk_rope_head_dim": 64,
          "rope_scaling": {"type": "yarn", "factor": 40, "mscale": 1.0, "mscale_all_dim": 1.0}})");
  EXPECT_EQ(model.rule, ScaleRule::yarn_mscale(40, 1));
  EXPECT_EQ(model.dim, 192);
}

TEST(ModelScale, CosinesOfSwinStartAtTen) {
  const ModelScale model = scale_of_config(R"({"model_type": "swinv2", "hidden_size": 96,
                                               "num_attention_heads": 3})");
  EXPECT_EQ(model.rule, ScaleRule::cosine());
  EXPECT_EQ(model.keys, std::vector<std::string>{"model_type"});
  EXPECT_EQ(model.notes.size(), 1u);
}

struct OfConfig {
  const char* config;
  ScaleRule rule;
};

// Keys that imply a rule in any family.
TEST(ModelScale, KeysOfAnyFamily) {
  const std::vector<OfConfig> table = {
      {R"({"use_logn_attn": true, "seq_length": 2048})", ScaleRule::logn(2048)},
      {R"({"use_logn_attn": false, "seq_length": 2048})", ScaleRule::standard()},
      {R"({"use_logn_attn": 1, "seq_length": 64})", ScaleRule::logn(64)},
      {R"({"use_logn_attn": "yes", "seq_length": 64})", ScaleRule::standard()},
      {R"({"use_logn_attn": 0, "rope_scaling": 3})", ScaleRule::standard()},
      {R"({"text_config": 1, "model_type": ["swinv2"]})", ScaleRule::standard()},
      {R"({"xai_temperature_len": 0})", ScaleRule::standard()},
      {R"({"query_pre_attn_scalar": 256, "attn_logit_softcapping": 50.0})",
       ScaleRule::query_pre_attn_scalar()},
      {R"({"attention_multiplier": 0.0078125})", ScaleRule::constant(0.0078125)},
      {R"({"attn_temperature_len": 1024})", ScaleRule::xai_temperature()},
      {R"({"log_scaling_n_floor": 128000, "log_scaling_alpha": 0.1})", ScaleRule::log_scaling()},
      {R"({"max_position_embeddings": 131072, "original_max_position_embeddings": 4096,
           "rope_scaling": {"type": "longrope", "long_factor": [1], "short_factor": [1]}})",
       ScaleRule::longrope(4096, 131072)},
      {R"({"rope_scaling": {"type": "linear", "factor": 2}})", ScaleRule::standard()},
      {R"({"rope_scaling": {"rope_type": "yarn", "factor": 32}})", ScaleRule::yarn_mscale(32)},
      {R"({"rope_scaling": {"type": "yarn", "factor": 0.5}})", ScaleRule::yarn_mscale(0.5)},
      {R"({"rope_scaling": {"type": "yarn", "factor": 4, "mscale": 0, "mscale_all_dim": 1}})",
       ScaleRule::yarn_mscale(4)},
      {R"({"rope_scaling": {"type": "yarn", "factor": 4, "mscale": 2, "mscale_all_dim": 0}})",
       ScaleRule::yarn_mscale(4, 2)},
      {R"({"rope_scaling": {"type": "yarn", "factor": 4, "mscale": 2, "mscale_all_dim": 2}})",
       ScaleRule::standard()},
      {R"({"kv_lora_rank": 8,
           "rope_scaling": {"type": "yarn", "factor": 4, "mscale": 2, "mscale_all_dim": 1}})",
       ScaleRule::yarn_mscale(4, 1)},
      {R"({"rope_scaling": {"rope_type": "yarn", "factor": 1, "mscale": 1, "mscale_all_dim": 2}})",
       ScaleRule::standard()},
      {R"({"rope_scaling": {"rope_type": "yarn", "factor": 32, "attention_factor": 1.5}})",
       ScaleRule::scaled({2.25})},
      {R"({"rope_parameters": {"rope_type": "yarn", "factor": 16, "llama_4_scaling_beta": 0.1,
           "original_max_position_embeddings": 16384}})",
       ScaleRule::llama_4_scaling(0.1, 16384) * ScaleRule::yarn_mscale(16)},
      {R"({"dual_chunk_attention_config":
           {"chunk_size": 262144, "original_max_position_embeddings": 262144}})",
       ScaleRule::dual_chunk()},
      {R"({"rope_scaling": null, "attn_temperature_tuning": null})", ScaleRule::standard()}};
  for (const auto& [config, rule] : table) EXPECT_EQ(scale_of_config(config).rule, rule) << config;
  EXPECT_EQ(scale_of_config(R"({"attn_logit_softcapping": 50.0})").soft_cap, 50);
  const ModelScale ratio = scale_of_config(
      R"({"rope_scaling": {"type": "yarn", "factor": 4, "mscale": 2, "mscale_all_dim": 1}})");
  EXPECT_NE(ratio.rule, ScaleRule::standard());
  EXPECT_EQ(scale_of_config(R"({"head_dim": 0.5, "num_attention_heads": 1e9})").dim, 0);
}

TEST(ModelScale, KnowsOnlyFamiliesThatWereRead) {
  EXPECT_TRUE(
      scale_of_config(R"({"model_type": "made_up", "text_config": {"model_type": "qwen3"}})")
          .known);
  EXPECT_TRUE(scale_of_config(R"({"model_type": "gemma3", "text_config": {}})").known);
  for (const char* text : {"{}", R"({"model_type": 3})", R"({"query_pre_attn_scalar": 256})",
                           R"({"model_type": "llama", "text_config": {"model_type": "made_up"}})"})
    EXPECT_FALSE(scale_of_config(text).known) << text;
}

TEST(ModelScale, TheLanguageModelMayLieInAPartOfAPart) {
  const ModelScale omni = scale_of_config(
      R"({"model_type": "qwen3_omni_moe", "head_dim": 64, "thinker_config": {"model_type": "t",
          "audio_config": {"head_dim": 32}, "text_config": {"head_dim": 128,
          "rope_scaling": {"rope_type": "yarn", "factor": 4}, "model_type": "qwen3_omni_moe_text"}}})");
  EXPECT_EQ(omni.rule, ScaleRule::yarn_mscale(4));
  EXPECT_EQ(omni.dim, 128);
  EXPECT_EQ(omni.model_type, "qwen3_omni_moe_text");
  EXPECT_EQ(omni.keys.front(), "thinker_config.text_config.rope_scaling.rope_type");
  for (const char* key : {"vlm_config", "llm_config", "language_config", "decoder"}) {
    const ModelScale model = scale_of_config(std::string(R"({"model_type": "llama", ")") + key +
                                             R"(": {"model_type": "gemma4_text"}})");
    EXPECT_EQ(model.rule, ScaleRule::constant(1)) << key;
  }
}

TEST(ModelScale, FamiliesWithAScaleInTheirCode) {
  const std::vector<OfConfig> table = {
      {R"({"model_type": "gemma3_text"})", ScaleRule::query_pre_attn_scalar(256)},
      {R"({"model_type": "step3p7"})", ScaleRule::standard()},
      {R"({"model_type": "granite"})", ScaleRule::constant(1)},
      {R"({"model_type": "hyperclovax"})", ScaleRule::standard()},
      {R"({"model_type": "llama", "attention_multiplier": 3})", ScaleRule::standard()},
      {R"({"model_type": "falcon_h1", "key_multiplier": 0.39})", ScaleRule::scaled({0.39})},
      {R"({"model_type": "mpt", "attn_config": {"softmax_scale": 0.25}})",
       ScaleRule::constant(0.25)},
      {R"({"model_type": "mpt", "attn_config": {"softmax_scale": null}})", ScaleRule::standard()},
      {R"({"model_type": "muse_spark", "text_config": {"qk_scale_factor": 5.5}})",
       ScaleRule::scaled({5.5})},
      {R"({"model_type": "muse_glimmer_text"})", ScaleRule::scaled({3.87})},
      {R"({"model_type": "gpt2", "scale_attn_weights": false})", ScaleRule::constant(1)},
      {R"({"model_type": "deberta-v2", "pos_att_type": ["p2c", "c2p"]})",
       ScaleRule::scaled({1 / std::sqrt(3.0)})},
      {R"({"model_type": "deberta-v2", "pos_att_type": "c2p"})",
       ScaleRule::scaled({1 / std::sqrt(2.0)})},
      {R"({"model_type": "deberta-v2"})", ScaleRule::scaled({1})},
      {R"({"model_type": "gpt2"})", ScaleRule::standard()},
      {R"({"model_type": "gpt2", "scale_attn_weights": true})", ScaleRule::standard()},
      {R"({"model_type": "zamba2"})", ScaleRule::scaled({std::sqrt(2.0)})},
      {R"({"model_type": "longcat_flash"})", ScaleRule::standard()},
      {R"({"model_type": "longcat_flash", "hidden_size": 64})", ScaleRule::standard()},
      {R"({"model_type": "longcat_flash", "hidden_size": 64, "q_lora_rank": 16})",
       ScaleRule::scaled({2})},
      {R"({"model_type": "phimoe", "rope_scaling": {"type": "longrope", "long_mscale": 1.5}})",
       ScaleRule::scaled({2.25})},
      {R"({"model_type": "inkling_text"})", ScaleRule::inverse_dim()},
      {R"({"model_type": "inkling_text", "log_scaling_n_floor": 128000})",
       ScaleRule::log_scaling()},
      // Equal mscale and mscale_all_dim cancel: yarn is 1, where a generic reading gives 1.2773^2.
      {R"({"model_type": "ministral3", "rope_parameters": {"rope_type": "yarn", "factor": 16,
           "mscale": 1.0, "mscale_all_dim": 1.0, "llama_4_scaling_beta": 0.1,
           "original_max_position_embeddings": 16384}})",
       ScaleRule::llama_4_scaling(0.1, 16384)}};
  for (const char* type : {"gemma4", "gemma4_text", "gemma3n_text", "t5", "gpt_neo"}) {
    const std::string text =
        std::string(R"({"query_pre_attn_scalar": 256, "model_type": ")") + type + "\"}";
    EXPECT_EQ(scale_of_config(text).rule, ScaleRule::constant(1)) << type;
    EXPECT_TRUE(scale_of_config(text).known) << type;
  }
  for (const auto& [config, rule] : table) {
    EXPECT_EQ(scale_of_config(config).rule, rule) << config;
    EXPECT_TRUE(scale_of_config(config).known) << config;
  }
}

TEST(ModelScale, LayersOfGpt2MayDivideByTheirNumberToo) {
  const ModelScale model =
      scale_of_config(R"({"model_type": "gpt2", "scale_attn_by_inverse_layer_idx": true})");
  EXPECT_EQ(model.rule, ScaleRule::standard());
  EXPECT_EQ(model.notes, std::vector<std::string>{"layer i, counted from 1, also divides by i"});
}

TEST(ModelScale, FamiliesWithALengthInTheirCode) {
  const ModelScale beam = scale_of_config(R"({"model_type": "beam", "head_dim": 64})");
  EXPECT_EQ(beam.layers, "without rotary embedding");
  EXPECT_EQ(beam.elsewhere, ScaleRule::standard());
  for (const std::int64_t position : {0, 2047, 100000})
    EXPECT_NEAR(beam.rule.lambda({.visible = 1, .position = position}, 64) * 8,
                std::pow(1 + static_cast<double>(position + 1) / 2048, 0.1), 1e-12);
  const ModelScale inkling = scale_of_config(
      R"({"model_type": "inkling2_text", "log_scaling_n_floor": 16, "log_scaling_alpha": 0.5})");
  EXPECT_EQ(inkling.layers, "global");
  EXPECT_EQ(inkling.elsewhere, ScaleRule::standard());
  EXPECT_NEAR(inkling.rule.lambda({.visible = 1, .position = 31}, 64) * 8, 1 + 0.5 * std::log(2),
              1e-12);
  EXPECT_EQ(inkling.rule.lambda({.visible = 1, .position = 15}, 64), 0.125);
  EXPECT_TRUE(inkling.rule.terms().front().form.scale_bias);
  const ModelScale large = scale_of_config(
      R"({"model_type": "mistral_large4", "text_config": {"model_type": "mistral_large4_text",
          "rope_parameters": {"rope_type": "yarn", "factor": 4, "mscale": 1, "mscale_all_dim": 1}}})");
  EXPECT_EQ(large.rule, ScaleRule::parse("ssmax(s=0,b=1,length=position,offset=1)") *
                            ScaleRule::yarn_mscale(4, 1));
  EXPECT_EQ(scale_of_config(R"({"model_type": "llama4_text"})").rule,
            ScaleRule::attn_temperature_tuning());
  EXPECT_EQ(
      scale_of_config(R"({"model_type": "llama4_text", "attn_temperature_tuning": false})").rule,
      ScaleRule::standard());
}

TEST(ModelScale, YarnAsTransformersReadsIt) {
  const auto rule = [](const std::string& type, const std::string& keys) {
    return scale_of_config(R"({"model_type": ")" + type +
                           R"(", "rope_parameters": {"rope_type": "yarn", "factor": 4)" + keys +
                           "}}")
        .rule;
  };
  EXPECT_EQ(rule("llama", R"(, "mscale": 2)"), ScaleRule::yarn_mscale(4));
  EXPECT_EQ(rule("llama", R"(, "mscale": 1, "mscale_all_dim": 1)"), ScaleRule::standard());
  EXPECT_EQ(rule("mistral4", R"(, "mscale_all_dim": 1)"),
            ScaleRule::yarn_mscale(4) * ScaleRule::yarn_mscale(4, 1));
  EXPECT_EQ(rule("mistral4", R"(, "attention_factor": 2, "mscale_all_dim": 1)"),
            ScaleRule::scaled({4}) * ScaleRule::yarn_mscale(4, 1));
  EXPECT_EQ(rule("longcat_flash", R"(, "mscale": 1, "mscale_all_dim": 1)"),
            ScaleRule::yarn_mscale(4, 1));
  // Inkling's rule by length already names the layers.
  const ModelScale by_length = scale_of_config(
      R"({"model_type": "inkling2_text",
          "rope_parameters": {"full_attention": {"rope_type": "yarn", "factor": 4}}})");
  EXPECT_EQ(by_length.layers, "global");
  EXPECT_EQ(by_length.elsewhere, ScaleRule::standard());
  const ModelScale layered = scale_of_config(
      R"({"model_type": "gemma3_text", "rope_parameters": {"sliding_attention": {"rope_type": "default"},
          "full_attention": {"rope_type": "yarn", "factor": 4}}})");
  EXPECT_EQ(layered.rule, ScaleRule::query_pre_attn_scalar(256) * ScaleRule::yarn_mscale(4));
  EXPECT_EQ(layered.elsewhere, ScaleRule::query_pre_attn_scalar(256));
  EXPECT_EQ(layered.layers, "global");
}

TEST(ModelScale, StagesWithOtherHeadsHaveNoOneDimension) {
  const ModelScale model = scale_of_config(
      R"({"model_type": "segformer", "hidden_size": [32, 64], "num_attention_heads": [1, 2]})");
  EXPECT_TRUE(model.known);
  EXPECT_EQ(model.dim, 0);
}

TEST(ModelScale, ReadsWhatPythonWrites) {
  const ModelScale model = scale_of_config(
      R"({"time_step_limit": [0.0, Infinity], "a": NaN, "b": -Infinity, "note": "Infinity \" NaN",
          "model_type": "falcon_h1", "key_multiplier": 0.5})");
  EXPECT_EQ(model.rule, ScaleRule::scaled({0.5}));
  EXPECT_EQ(scale_of_config(R"({"model_type": "Infinity"})").model_type, "Infinity");
  EXPECT_EQ(scale_of_config(R"({"model_type": "a\\"})").model_type, "a\\");
}

TEST(ModelScale, RejectsWhatIsNoConfig) {
  for (const char* text : {"", "[]", "3", R"({"query_pre_attn_scalar": "wide"})",
                           R"({"query_pre_attn_scalar": -1})"}) {
    EXPECT_THROW((void)scale_of_config(text), Error) << text;
  }
}

}  // namespace
}  // namespace isentrope
