// Validation of paged caches and of their sequences.
#pragma once

#include "isentrope/attention.h"
#include "src/call/checks.h"

namespace isentrope {

// Throws Error unless table, lengths and options fit a call. Does not read arrays.
void check_pages(const Checks& check, const AttentionInput& input, const AttentionOptions& options);

// Throws Error unless page numbers, numbers of keys and beginnings of queries are valid. Reads the
// arrays, in host memory, after check_pages().
void check_page_contents(const Checks& check, const AttentionInput& input);

}  // namespace isentrope
