/* A user of the C interface. */

#include <stdio.h>
#include <string.h>

#include "isentrope/isentrope.h"

int main(void) {
  double lambda = 0;
  isentrope_device* device = NULL;
  if (isentrope_rule_lambda("entropy_invariant(base=512)", 512, 64, 0, &lambda) != ISENTROPE_OK) {
    puts(isentrope_last_error());
    return 1;
  }
  printf("Isentrope %s on %s: lambda = %g\n", isentrope_version(), isentrope_active_target(), lambda);
  /* Without kernels, or in a build without devices. */
  if (isentrope_device_open("no/such/folder", 0, &device) != ISENTROPE_BAD_ARGUMENT) return 1;
  puts(isentrope_last_error());
  if (strstr(isentrope_last_error(), "kernels.json") == NULL && strstr(isentrope_last_error(), "ISENTROPE_CUDA") == NULL) return 1;
  return lambda == 0.125 ? 0 : 1;
}
