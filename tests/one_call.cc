// One problem, run once on AVX2 and one thread: what instruction_counts.py counts.

#include <cstdio>

#include "check/measure.h"
#include "isentrope/target.h"

int main(int argc, char** argv) {
  using namespace isentrope;
  if (argc != 2) return 2;
  use_target("AVX2");
  check::PreparedCall(check::parse_problem(argv[1]), run_serially).run();
  return 0;
}
