# Language level, warnings and sanitizers of every target.

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)

# In unity builds a library is one unit, because headers and templates take most of each file's time.
set(CMAKE_UNITY_BUILD_BATCH_SIZE 0)

find_program(CCACHE ccache)
if(CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CCACHE})
endif()

if(CMAKE_CXX_COMPILER_ID STREQUAL GNU)
  # GCC collects garbage only above a gigabyte, which saves a twelfth of the time of units with many headers.
  add_compile_options($<$<COMPILE_LANGUAGE:CXX>:--param=ggc-min-heapsize=1000000>)
endif()

if(ISENTROPE_SANITIZE)
  # A finding ends the test; UBSan would otherwise print and continue.
  add_compile_options(-fsanitize=${ISENTROPE_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer)
  add_link_options(-fsanitize=${ISENTROPE_SANITIZE})
  if(CMAKE_CXX_COMPILER_ID STREQUAL GNU AND ISENTROPE_SANITIZE MATCHES address AND ISENTROPE_SANITIZE MATCHES undefined)
    # With these checks function addresses are no constants to GCC (PR 71962). The address sanitizer finds null pointers.
    add_compile_options(-fno-sanitize=null,nonnull-attribute,returns-nonnull-attribute)
  endif()
endif()

# isentrope_target(NAME): enables warnings.
function(isentrope_target name)
  target_compile_options(${name} PRIVATE -Wall -Wextra -Wshadow -Wconversion -Wno-sign-conversion)
  if(CMAKE_CXX_COMPILER_ID STREQUAL GNU)
    target_compile_options(${name} PRIVATE -Wno-restrict)  # GCC 12 sees overlaps in std::string + (PR 105651)
  endif()
  if(ISENTROPE_DEVELOPER AND NOT ISENTROPE_FUZZ)  # clang warns of other things than GCC
    target_compile_options(${name} PRIVATE -Werror)
  endif()
endfunction()

# isentrope_library(NAME PUBLIC|PRIVATE SOURCE...): a static library isentrope::NAME. Its users see the repository's headers
# if they are public.
function(isentrope_library name headers)
  add_library(isentrope_${name} STATIC ${ARGN})
  add_library(isentrope::${name} ALIAS isentrope_${name})
  target_include_directories(isentrope_${name} ${headers} ${PROJECT_SOURCE_DIR})
  set_target_properties(isentrope_${name} PROPERTIES EXPORT_NAME ${name})
  isentrope_target(isentrope_${name})
endfunction()

# isentrope_compile_fast(NAME): for commands, pages, JSON and tests, mostly template instantiations that need no speed.
# With GCC 12 a page's files take 11.3 seconds instead of 15.6 with -O1.
function(isentrope_compile_fast name)
  target_compile_options(${name} PRIVATE $<$<CONFIG:Release>:-Og>)
endfunction()

# isentrope_use_highway(NAME): compiles kernels for each instruction set with distinct code, also the portable one,
# because tests compare each with the reference (docs/adr/0033). Disabled by Highway's bits, because Debian 12's version
# lacks names for the newer ones: AVX3_SPR, AVX3_ZEN4, AVX3_DL (which run AVX3's code) and SSSE3. On Arm also all kinds
# of SVE, whose vectors cannot be stored in arrays (docs/adr/0009).
function(isentrope_use_highway name)
  target_link_libraries(${name} PRIVATE hwy::hwy)
  if(CMAKE_SYSTEM_PROCESSOR MATCHES "aarch64|arm64")
    set(without "(HWY_SVE|HWY_SVE2|HWY_SVE_256|HWY_SVE2_128)")
  else()
    set(without 0x10D0)
  endif()
  target_compile_definitions(${name} PRIVATE HWY_COMPILE_ALL_ATTAINABLE HWY_DISABLED_TARGETS=${without})
endfunction()
