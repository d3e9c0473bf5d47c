# Writes OUTPUT, a file with the commit of SOURCE. It runs at each build and leaves an unchanged file alone.
set(commit unknown)
find_package(Git QUIET)
if(GIT_FOUND)
  execute_process(COMMAND ${GIT_EXECUTABLE} rev-parse HEAD WORKING_DIRECTORY ${SOURCE}
    OUTPUT_VARIABLE head OUTPUT_STRIP_TRAILING_WHITESPACE RESULT_VARIABLE failed ERROR_QUIET)
  if(NOT failed)
    execute_process(COMMAND ${GIT_EXECUTABLE} diff --quiet HEAD WORKING_DIRECTORY ${SOURCE} RESULT_VARIABLE changed)
    set(commit ${head})
    if(changed)
      string(APPEND commit "+changes")
    endif()
  endif()
endif()
file(CONFIGURE OUTPUT ${OUTPUT} CONTENT [[#include "tools/lab/commit.h"

namespace isentrope::lab {

std::string_view program_commit() { return "@commit@"; }

}  // namespace isentrope::lab
]] @ONLY)
