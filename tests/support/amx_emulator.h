// AMX for tests on CPUs that have none, or none of f16: the library's own instructions run, and
// what the CPU refuses is computed on tiles in memory, as Intel's manual defines it.
//
// An instruction that a CPU with AMX would refuse as well, an illegal configuration or tiles whose
// shapes do not fit, ends the program with a line that says what is wrong.
#pragma once

#include <cstdint>

#include "isentrope/tensor.h"

namespace isentrope {

// Installs the handler of SIGILL. Of a CPU that has tiles it takes those, and is called for the
// instructions that this CPU does not know.
void emulate_amx(bool cpu_has_tiles);

// C += A B of whole tiles, 16 rows of 64 bytes, as the emulator computes the product of the type.
void emulate_product(DType type, const void* a, const void* b, void* c);

// Whether this CPU leaves products of the type to the emulator. Asked by running one: a virtual
// machine may hide instructions that its CPU has.
[[nodiscard]] bool is_emulated(DType type);

// So many instructions were emulated, by all threads.
[[nodiscard]] std::int64_t emulated_instructions();

// Whether this thread left its tiles as it found them: without a configuration. Asked of the
// CPU where it runs AMX.
[[nodiscard]] bool tiles_are_released();

}  // namespace isentrope
