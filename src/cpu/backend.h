// The backend of this folder.
#pragma once

#include "src/backend.h"

namespace isentrope {

[[nodiscard]] const Backend& cpu_backend();

}  // namespace isentrope
