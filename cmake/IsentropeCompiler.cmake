# Language level, warnings and sanitizers, the same for every target of the project.

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)

find_program(CCACHE ccache)
if(CCACHE)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CCACHE})
endif()

if(ISENTROPE_SANITIZE)
  # A finding ends the test: UBSan would otherwise print and carry on.
  add_compile_options(-fsanitize=${ISENTROPE_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer)
  add_link_options(-fsanitize=${ISENTROPE_SANITIZE})
endif()

# isentrope_target(NAME): warnings for one of our own targets.
function(isentrope_target name)
  target_compile_options(${name} PRIVATE -Wall -Wextra -Wshadow -Wconversion -Wno-sign-conversion)
  # GCC 12 sees an overlap in "literal" + std::string that is not there (its bug 105651).
  target_compile_options(${name} PRIVATE
    $<$<AND:$<CXX_COMPILER_ID:GNU>,$<VERSION_LESS:$<CXX_COMPILER_VERSION>,13>>:-Wno-restrict>)
  if(ISENTROPE_DEVELOPER)
    target_compile_options(${name} PRIVATE -Werror)
  endif()
endfunction()
