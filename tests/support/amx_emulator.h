// Emulates AMX for tests on CPUs without it, or without its f16 products. Only instructions that
// the CPU rejects are computed on tiles in memory, as Intel's manual defines them.
//
// An instruction that a CPU with AMX would reject as well, because of an illegal configuration or
// mismatched tiles, ends the program with a message.
#pragma once

#include <cstdint>

#include "isentrope/tensor.h"

namespace isentrope {

// Installs the handler of SIGILL; uses the tiles of a CPU that has them.
void emulate_amx(bool cpu_has_tiles);

// Computes C += A B of whole tiles, 16 rows of 64 bytes, as the emulator does for the type.
void emulate_product(DType type, const void* a, const void* b, void* c);

// Returns whether products of the type are emulated. Runs one: virtual machines hide instructions.
[[nodiscard]] bool is_emulated(DType type);

// Returns the number of instructions emulated by all threads.
[[nodiscard]] std::int64_t emulated_instructions();

// Returns whether this thread's tiles are released. Asks the CPU if it runs AMX.
[[nodiscard]] bool tiles_are_released();

}  // namespace isentrope
