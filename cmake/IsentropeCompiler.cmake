# Language level, warnings and sanitizers, the same for every target of the project.

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)

# Where units are joined, a library is one of them: headers and templates are most of what each takes.
set(CMAKE_UNITY_BUILD_BATCH_SIZE 0)

find_program(CCACHE ccache)
if(CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CCACHE})
endif()

if(CMAKE_CXX_COMPILER_ID STREQUAL GNU)
  # Memory is collected once there is a gigabyte of it: a twelfth of the time that units of many headers take.
  add_compile_options($<$<COMPILE_LANGUAGE:CXX>:--param=ggc-min-heapsize=1000000>)
endif()

if(ISENTROPE_SANITIZE)
  # A finding ends the test: UBSan would otherwise print and carry on.
  add_compile_options(-fsanitize=${ISENTROPE_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer)
  add_link_options(-fsanitize=${ISENTROPE_SANITIZE})
  if(CMAKE_CXX_COMPILER_ID STREQUAL GNU AND ISENTROPE_SANITIZE MATCHES address AND ISENTROPE_SANITIZE MATCHES undefined)
    # With these GCC holds no function's address for a constant (PR 71962); what is null ends at the address sanitizer too.
    add_compile_options(-fno-sanitize=null,nonnull-attribute,returns-nonnull-attribute)
  endif()
endif()

# isentrope_target(NAME): warnings for one of our own targets.
function(isentrope_target name)
  target_compile_options(${name} PRIVATE -Wall -Wextra -Wshadow -Wconversion -Wno-sign-conversion)
  if(CMAKE_CXX_COMPILER_ID STREQUAL GNU)
    target_compile_options(${name} PRIVATE -Wno-restrict)  # GCC 12 sees overlaps in std::string + (PR 105651)
  endif()
  if(ISENTROPE_DEVELOPER AND NOT ISENTROPE_FUZZ)  # clang warns of other things than GCC
    target_compile_options(${name} PRIVATE -Werror)
  endif()
endfunction()

# isentrope_compile_fast(NAME): for commands, pages and JSON, whose time is that of the libraries' templates they are made
# of. With GCC 12 a page's files take 11.3 seconds instead of 15.6 with -O1, and what they do takes none.
function(isentrope_compile_fast name)
  target_compile_options(${name} PRIVATE $<$<CONFIG:Release>:-Og>)
endfunction()

# isentrope_use_highway(NAME): kernels for the instruction sets that differ in what they make of them, the portable one
# included, since tests hold each to the reference (docs/adr/0033). By Highway's bits, since the version of Debian 12 has no
# names for the newer ones: AVX3_SPR, AVX3_ZEN4 and AVX3_DL, which run what AVX3 runs, and SSSE3. On Arm SVE in its kinds,
# whose vectors cannot stand in arrays (docs/adr/0009).
function(isentrope_use_highway name)
  target_link_libraries(${name} PRIVATE hwy::hwy)
  if(CMAKE_SYSTEM_PROCESSOR MATCHES "aarch64|arm64")
    set(without "(HWY_SVE|HWY_SVE2|HWY_SVE_256|HWY_SVE2_128)")
  else()
    set(without 0x10D0)
  endif()
  target_compile_definitions(${name} PRIVATE HWY_COMPILE_ALL_ATTAINABLE HWY_DISABLED_TARGETS=${without})
endfunction()
