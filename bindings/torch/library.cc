// Schemas and registration of the operators when the library is loaded. Gradients, fake kernels and
// batching rules are registered in Python; kernels of other devices under their own dispatch key.

#include <string>

#include "bindings/torch/call.h"
#include "bindings/torch/operators.h"

namespace isentrope::stable {
namespace {

// Version of the stable interface that the kernels use: torch 2.10.
constexpr std::uint64_t kInterface = std::uint64_t{2} << 56 | std::uint64_t{10} << 48;

using Kernel = void(StableIValue*, std::uint64_t, std::uint64_t);

void define(TorchLibraryHandle library) {
  const std::string call = call_schema();
  const auto schema = [&](const std::string& text) {
    must(aoti_torch_library_def(library, text.c_str()), "define an operator");
  };
  const std::string results = " -> (Tensor output, Tensor statistics, Tensor support)";
  schema("attention(" + call + ", int wanted)" + results);
  schema("attention_backward(" + call +
         ", int wanted, Tensor output, Tensor statistics, Tensor? d_output, " +
         "Tensor? d_statistics, bool wants_bias, bool wants_lambda, bool wants_sinks, " +
         "bool in_float32)" +
         " -> (Tensor dq, Tensor dk, Tensor dv, Tensor d_bias, Tensor d_lambda, Tensor d_sinks)");
  const std::string linearized =
      call +
      ", int wanted, Tensor output, Tensor statistics, Tensor? t_q, Tensor? t_k, Tensor? t_v, "
      "Tensor? t_bias, Tensor? t_lambda, Tensor? t_sinks";
  schema("attention_tangent(" + linearized + ") -> (Tensor t_output, Tensor t_statistics)");
  schema("attention_second_tangent(" + linearized +
         ", Tensor? u_q, Tensor? u_k, Tensor? u_v, Tensor? u_bias, Tensor? u_lambda, " +
         "Tensor? u_sinks) -> (Tensor t_output, Tensor t_statistics)");
  schema("attention_second_order(" + linearized +
         ", Tensor t_output, Tensor t_statistics, Tensor? d_output, Tensor? d_statistics, " +
         "bool wants_bias, bool wants_lambda, bool wants_sinks)" +
         " -> (Tensor dq, Tensor dk, Tensor dv, Tensor d_bias, Tensor d_lambda, Tensor d_sinks)");
  const std::string plain = "Tensor q, Tensor k, Tensor v, str rule, int causal";
  schema("attention.plain(" + plain + ", int wanted) -> Tensor[]");
  schema("attention_backward.plain(" + plain + ", Tensor output, Tensor lse, Tensor d_output)" +
         " -> (Tensor dq, Tensor dk, Tensor dv)");
  const std::string sequences = ", Tensor block_table, Tensor seqused_k, Tensor? cu_seq_q";
  schema("decode(" + call + sequences + ", int wanted)" + results);
  schema("decode_codes(" + call + ", Tensor k_scale, Tensor v_scale" + sequences + ", int wanted)" +
         results);
  schema("decode_received(" + call + ", Tensor? k_scale, Tensor? v_scale" + sequences +
         ", int wanted) -> (Tensor output, Tensor statistics, Tensor support, Tensor received)");
  schema("received(" + call + ", Tensor lse, Tensor? weights) -> Tensor");
  const std::string of_chosen = " -> (Tensor weights, Tensor by_score, Tensor by_bias)";
  schema("weights_at(" + call + ", Tensor lse, Tensor keys)" + of_chosen);
  schema("weights_at_paged(" + call + ", Tensor lse, Tensor keys, Tensor? k_scale" + sequences +
         ")" + of_chosen);
  schema("received_paged(" + call + ", Tensor lse, Tensor? weights, Tensor? k_scale" + sequences +
         ") -> Tensor");
  schema(
      "write_cache(Tensor k, Tensor v, Tensor(a!) k_cache, Tensor(b!) v_cache, "
      "Tensor slot_mapping) -> ()");
  schema("quantize(Tensor rows, int groups) -> (Tensor codes, Tensor scales)");
  schema("row_lengths(" + call + ") -> Tensor");
  schema("keys_seen(" + call + ", Tensor rows) -> Tensor");
  schema("check_call(" + call + ", Tensor? block_table, Tensor? cu_seq_q) -> ()");
  schema("device_plan(int heads, int kv_heads, int queries, bool paged, str given) -> str");
  schema("shares_of(int wave, int blocks, int keys, int tile) -> int");
  schema("call_arguments() -> str");
  schema("statistics() -> str");
  schema("rule_text(str rule) -> str");
  schema("rule_to_json(str rule) -> str");
  schema("rule_from_json(str json) -> str");
  schema("rule_lambda(str rule, int n, int d, int head) -> float");
  schema("rule_heads(str rule) -> int");
  schema("rule_of_heads(str rule, int first, int count) -> str");
  schema("rule_reads_length(str rule) -> bool");
  schema("rule_reads_position(str rule) -> bool");
  schema("rule_table(str rule, int source, int d, int first, int count, bool capped) -> Tensor");
  schema("rule_catalogue() -> str");
  schema("model_scale(str config_json) -> str");
}

void implement(TorchLibraryHandle library, const char* name, Kernel* kernel) {
  must(torch_library_impl(library, name, kernel, kInterface), "register a kernel");
}

TorchLibraryHandle implementations(const char* key, std::uint32_t line) {
  TorchLibraryHandle library = nullptr;
  must(aoti_torch_library_init_impl("isentrope", key, "isentrope", line, &library),
       "open a library");
  return library;
}

// The handles live as long as the process, like their registrations.
const bool registered = [] {
  TorchLibraryHandle schemas = nullptr;
  must(aoti_torch_library_init_def("isentrope", "isentrope", __LINE__, &schemas), "open a library");
  define(schemas);
  const TorchLibraryHandle cpu = implementations("CPU", __LINE__);
  implement(cpu, "attention", attention);
  implement(cpu, "attention_backward", attention_backward);
  implement(cpu, "attention_tangent", attention_tangent);
  implement(cpu, "attention_second_order", attention_second_order);
  implement(cpu, "attention_second_tangent", attention_second_tangent);
  implement(cpu, "attention.plain", attention_plain);
  implement(cpu, "attention_backward.plain", attention_backward_plain);
  implement(cpu, "decode", decode);
  implement(cpu, "decode_codes", decode_codes);
  implement(cpu, "decode_received", decode_received);
  implement(cpu, "received", received);
  implement(cpu, "received_paged", received_paged);
  implement(cpu, "weights_at", weights_at);
  implement(cpu, "weights_at_paged", weights_at_paged);
  implement(cpu, "quantize", quantize);
  implement(cpu, "write_cache", write_cache);
  implement(cpu, "row_lengths", row_lengths);
  implement(cpu, "keys_seen", keys_seen);
  implement(cpu, "check_call", check_call);
  // Operators without tensors have no device to dispatch on.
  const TorchLibraryHandle any = implementations("CompositeExplicitAutograd", __LINE__);
  implement(any, "device_plan", device_plan);
  implement(any, "shares_of", shares_of);
  implement(any, "call_arguments", call_arguments);
  implement(any, "statistics", statistics);
  implement(any, "rule_text", rule_text);
  implement(any, "rule_to_json", rule_to_json);
  implement(any, "rule_from_json", rule_from_json);
  implement(any, "rule_lambda", rule_lambda);
  implement(any, "rule_heads", rule_heads);
  implement(any, "rule_of_heads", rule_of_heads);
  implement(any, "rule_reads_length", rule_reads_length);
  implement(any, "rule_reads_position", rule_reads_position);
  implement(any, "rule_table", rule_table);
  implement(any, "rule_catalogue", rule_catalogue);
  implement(any, "model_scale", model_scale);
  return true;
}();

}  // namespace
}  // namespace isentrope::stable
