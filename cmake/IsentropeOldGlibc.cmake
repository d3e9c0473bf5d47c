# ISENTROPE_GLIBC, such as 2.28: modules and programs also run with that glibc, if this machine's is newer (docs/adr).
set(ISENTROPE_GLIBC "" CACHE STRING "The oldest glibc that modules and programs shall run with, if not this machine's")

# isentrope_old_glibc(TARGET...): links stub libraries instead of glibc's, and GCC's own statically.
function(isentrope_old_glibc)
  if(NOT ISENTROPE_GLIBC)
    return()
  endif()
  find_package(Python3 REQUIRED COMPONENTS Interpreter)
  set(sources ${PROJECT_SOURCE_DIR}/cmake/old_glibc)
  set(stubs ${PROJECT_BINARY_DIR}/old_glibc)
  execute_process(COMMAND ${Python3_EXECUTABLE} ${sources}/stubs.py ${stubs} ${ISENTROPE_GLIBC} ${CMAKE_CXX_COMPILER}
                  COMMAND_ERROR_IS_FATAL ANY)
  foreach(target IN LISTS ARGN)
    target_sources(${target} PRIVATE ${sources}/shims.cc)
    set_source_files_properties(${sources}/shims.cc ${sources}/start.cc TARGET_DIRECTORY ${target}
      PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
    # libgcc_s exists with every glibc and requires that of its own machine.
    target_link_options(${target} PRIVATE -L${stubs} -static-libstdc++ LINKER:--exclude-libs,ALL LINKER:--allow-shlib-undefined)
    get_target_property(type ${target} TYPE)
    if(type STREQUAL EXECUTABLE)
      target_sources(${target} PRIVATE ${sources}/start.cc)
      target_link_options(${target} PRIVATE LINKER:--wrap=__libc_start_main)
    endif()
  endforeach()
endfunction()
