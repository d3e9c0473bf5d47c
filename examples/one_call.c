/* Causal attention over four tokens, and the entropy of each row. */

#include <stdio.h>

#include "isentrope/isentrope.h"

int main(void) {
  const int64_t shape[4] = {1, 1, 4, 2}; /* batch, heads, length, dim */
  float tokens[8] = {1, 0, 0, 1, 1, 1, -1, 2}, output[8], entropy[4], lambda[4];
  isentrope_forward_call call = {.struct_size = sizeof call};
  isentrope_statistics statistics = {.struct_size = sizeof statistics};
  isentrope_options* options = isentrope_options_create();
  int row;

  call.q = call.k = call.v =
      isentrope_array_contiguous(tokens, ISENTROPE_F32, 4, shape);
  call.output = isentrope_array_contiguous(output, ISENTROPE_F32, 4, shape);
  statistics.entropy =
      isentrope_array_contiguous(entropy, ISENTROPE_F32, 3, shape);
  statistics.lambda =
      isentrope_array_contiguous(lambda, ISENTROPE_F32, 3, shape);
  call.statistics = &statistics;
  if (isentrope_options_set_causal(options, ISENTROPE_CAUSAL_TOP_LEFT) !=
          ISENTROPE_OK ||
      isentrope_options_set_rule(options, "entropy_invariant(base=4)") !=
          ISENTROPE_OK ||
      isentrope_forward(options, &call) != ISENTROPE_OK) {
    fprintf(stderr, "%s\n", isentrope_last_error());
    return 1;
  }
  puts("row    lambda    entropy    output");
  for (row = 0; row < 4; ++row) {
    printf("%3d    %6.3f    %7.3f    %6.3f %6.3f\n", row, lambda[row],
           entropy[row], output[2 * row], output[2 * row + 1]);
  }
  isentrope_options_destroy(options);
  return 0;
}
