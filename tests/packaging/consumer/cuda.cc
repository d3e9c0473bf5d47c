// Uses devices, without kernels for them.

#include <cstdio>
#include <cstring>

#include "isentrope/cuda/attention.h"
#include "isentrope/error.h"

int main() {
  try {
    const isentrope::cuda::Device device("no/such/folder");
  } catch (const isentrope::Error& error) {
    std::puts(error.what());
    return std::strstr(error.what(), "kernels.json") == nullptr ? 1 : 0;
  }
  return 1;
}
