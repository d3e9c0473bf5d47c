// Operands of the tangent pass, and the products that take them.

#if defined(ISENTROPE_TANGENT_OPERANDS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ISENTROPE_TANGENT_OPERANDS_INL_H_
#undef ISENTROPE_TANGENT_OPERANDS_INL_H_
#else
#define ISENTROPE_TANGENT_OPERANDS_INL_H_
#endif

#include <cstddef>

#include "hwy/highway.h"
#include "src/cpu/kernels.h"
#include "src/cpu/product/operand.h"
#include "src/cpu/scratch.h"
#include "src/cpu/steps/row_tile_state-inl.h"
#include "src/cpu/steps/score_term-inl.h"

HWY_BEFORE_NAMESPACE();
namespace isentrope::HWY_NAMESPACE {

// The rows of all tensors but the queries. Tensors without data are never listed.
struct TangentOperands {
  explicit TangentOperands(const TangentCall& call)
      : query_tangents(call.query_tangents.tensor()),
        keys(call.input.k),
        key_tangents(call.tangent.tangents.k),
        values(call.input.v),
        value_tangents(call.tangent.tangents.v),
        query_tangents_given(call.query_tangents.tensor()),
        key_tangents_given(call.tangent.tangents.k),
        value_tangents_given(call.tangent.tangents.v) {}
  Operand query_tangents, keys, key_tangents, values, value_tangents;
  const bool query_tangents_given, key_tangents_given, value_tangents_given;
};
// Factors of the rows of a query block.
struct TangentFactors {
  Buffer<float> lambda;  // in nats
  // Factors of the tangents of queries: lambda, or 1 if they are scaled already.
  Buffer<float> of_tangents;
};
// Products of a tile: the scores, the two of their tangents, and the two of the output's.
struct TangentTerms {
  TangentTerms(const TangentCall& call, const BlockSizes& sizes)
      : logits(sizes.pairs, call.input.q, call.input.k),
        of_queries(sizes.pairs, call.query_tangents.tensor(), call.input.k),
        of_keys(sizes.pairs, call.input.q, call.tangent.tangents.k),
        of_weights(sizes.pairs, call.input.v, of_queries || of_keys || call.tangent.tangents.bias),
        of_values(sizes.pairs, call.tangent.tangents.v, true) {}
  [[nodiscard]] bool uses_pairs() const {
    return logits.uses_pairs() || of_queries.uses_pairs() || of_keys.uses_pairs() ||
           of_weights.uses_pairs() || of_values.uses_pairs();
  }
  ScoreTerm logits, of_queries, of_keys;
  ValueTerm of_weights, of_values;
};

}  // namespace isentrope::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
