# Files for find_package(isentrope) and pkg-config.

include(CMakePackageConfigHelpers)

set(package ${CMAKE_INSTALL_LIBDIR}/cmake/isentrope)

function(isentrope_install_headers folder)  # only headers directly in include/FOLDER
  file(GLOB headers CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/include/${folder}/*.h)
  install(FILES ${headers} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/${folder} COMPONENT development)
endfunction()

# Headers directly in isentrope/ belong to core and shared, which every build has. Another component installs a folder
# of headers with its library. Each has its own export set, so that users of one need no dependency of another.
isentrope_install_headers(isentrope)
foreach(component core shared config theory cuda libtorch)
  if(TARGET isentrope_${component})
    install(TARGETS isentrope_${component} EXPORT isentrope-${component}
      LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT development
      ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT development)
    install(EXPORT isentrope-${component} FILE isentrope-${component}-targets.cmake NAMESPACE isentrope::
      DESTINATION ${package} COMPONENT development)
    isentrope_install_headers(isentrope/${component})
  endif()
endforeach()

if(TARGET isentrope_libtorch)  # C++ built with one libtorch does not link with another
  get_directory_property(torch_version DIRECTORY ${PROJECT_SOURCE_DIR}/bindings/libtorch DEFINITION Torch_VERSION)
endif()
configure_package_config_file(${CMAKE_CURRENT_LIST_DIR}/isentrope-config.cmake.in
  ${PROJECT_BINARY_DIR}/isentrope-config.cmake INSTALL_DESTINATION ${package})
# Before 1.0 a minor version may break compatibility.
write_basic_package_version_file(${PROJECT_BINARY_DIR}/isentrope-config-version.cmake
  COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/isentrope-config.cmake ${PROJECT_BINARY_DIR}/isentrope-config-version.cmake
  DESTINATION ${package} COMPONENT development)

# The prefix is relative to the .pc file, so that an installed tree can be moved.
file(RELATIVE_PATH to_prefix /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
foreach(file isentrope isentrope-core)
  configure_file(${CMAKE_CURRENT_LIST_DIR}/${file}.pc.in ${PROJECT_BINARY_DIR}/${file}.pc @ONLY)
  install(FILES ${PROJECT_BINARY_DIR}/${file}.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig
    COMPONENT development)
endforeach()

if(TARGET isentrope_ggml)
  install(TARGETS isentrope_ggml LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT programs)
endif()
if(ISENTROPE_PROGRAMS)  # the command line finds its subcommands next to itself
  foreach(program isentrope isentrope_extrapolate isentrope_extrapolate_trainer)
    if(TARGET ${program})
      install(TARGETS ${program} RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT programs)
    endif()
  endforeach()
endif()
