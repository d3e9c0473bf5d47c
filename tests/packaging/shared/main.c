/* A user of the C interface. */

#include <stdio.h>

#include "isentrope/isentrope.h"

int main(void) {
  double lambda = 0;
  if (isentrope_rule_lambda("entropy_invariant(base=512)", 512, 64, 0, &lambda) != ISENTROPE_OK) {
    puts(isentrope_last_error());
    return 1;
  }
  printf("Isentrope %s on %s: lambda = %g\n", isentrope_version(), isentrope_active_target(), lambda);
  return lambda == 0.125 ? 0 : 1;
}
