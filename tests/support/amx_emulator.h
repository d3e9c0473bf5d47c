// AMX for tests on CPUs that have none: the library's own instructions run, and what the CPU
// refuses is computed on tiles in memory, as Intel's manual defines it.
//
// An instruction that a CPU with AMX would refuse as well, an illegal configuration or tiles whose
// shapes do not fit, ends the program with a line that says what is wrong.
#pragma once

#include <cstdint>

namespace isentrope {

// Installs the handler of SIGILL. On a CPU that runs AMX it is never called.
void emulate_amx();

// C += A B of whole tiles, 16 rows of 64 bytes, as the emulator computes TDPBF16PS.
void emulate_product(const void* a, const void* b, void* c);

// So many instructions were emulated, by all threads.
[[nodiscard]] std::int64_t emulated_instructions();

// Whether this thread left its tiles as it found them: without a configuration. Asked of the
// CPU where it runs AMX.
[[nodiscard]] bool tiles_are_released();

}  // namespace isentrope
