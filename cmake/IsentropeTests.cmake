# Two tiers of tests. Tests labelled `long` run in `make test-all` only; the rest also in `make test`, which builds the
# target fast_tests. CONTRIBUTING.md says which test covers which front door.
add_custom_target(fast_tests)

# isentrope_add_test(NAME [LONG] [PROGRAMS TARGET...] COMMAND ...): PROGRAMS are built before the test.
function(isentrope_add_test name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "LONG" "" "PROGRAMS;COMMAND")
  add_test(NAME ${name} COMMAND ${arg_COMMAND})
  if(arg_LONG)
    set_tests_properties(${name} PROPERTIES LABELS long TIMEOUT 7200)
  elseif(arg_PROGRAMS)
    add_dependencies(fast_tests ${arg_PROGRAMS})
  endif()
endfunction()

# isentrope_test(PATH [LONG | LONG_CASES FILTER] LIBRARY... [SOURCES FILE...]): a GoogleTest program from PATH.cc or the
# given files, named by the last part of PATH. All of it is long, or only the cases of the filter.
function(isentrope_test path)
  cmake_path(GET path FILENAME name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "LONG" "LONG_CASES" "SOURCES")
  set(libraries ${arg_UNPARSED_ARGUMENTS})
  isentrope_missing(missing ${libraries})
  if(missing)
    isentrope_left_out(${name} "${missing}")
    return()
  endif()
  if(arg_SOURCES)
    add_executable(${name} ${arg_SOURCES})
    # Shared headers, such as libtorch's, are parsed once.
    set_target_properties(${name} PROPERTIES UNITY_BUILD "$CACHE{CMAKE_UNITY_BUILD}")
  else()
    add_executable(${name} ${path}.cc)
  endif()
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR})
  target_link_libraries(${name} PRIVATE ${libraries} GTest::gtest_main)
  isentrope_target(${name})
  target_compile_options(${name} PRIVATE $<$<CONFIG:Release>:-O1>)  # compiles in three quarters of the time
  if(arg_LONG)
    isentrope_add_test(${name} LONG COMMAND ${name})
  elseif(arg_LONG_CASES)
    isentrope_add_test(${name} PROGRAMS ${name} COMMAND ${name} --gtest_filter=-${arg_LONG_CASES})
    isentrope_add_test(${name}.long LONG COMMAND ${name} --gtest_filter=${arg_LONG_CASES})
  else()
    isentrope_add_test(${name} PROGRAMS ${name} COMMAND ${name})
  endif()
endfunction()

# isentrope_command_test(NAME VARIABLE PROGRAM ...): as isentrope_test(), for tests that run a program, whose path is
# the macro VARIABLE.
function(isentrope_command_test name variable program)
  isentrope_missing(missing ${program})
  if(missing)
    isentrope_left_out(${name} "${missing}")
    return()
  endif()
  isentrope_test(${name} ${ARGN})
  if(TARGET ${name})
    target_compile_definitions(${name} PRIVATE ${variable}="$<TARGET_FILE:${program}>")
    add_dependencies(${name} ${program})
  endif()
endfunction()
