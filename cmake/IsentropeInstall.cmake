# What find_package(isentrope) and pkg-config find.

include(CMakePackageConfigHelpers)

set(package ${CMAKE_INSTALL_LIBDIR}/cmake/isentrope)
# Two export sets, so that whoever takes the shared library needs nothing that the static one is made of.
foreach(name core shared)
  install(TARGETS isentrope_${name} EXPORT isentrope-${name}
    LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT development
    ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT development)
  install(EXPORT isentrope-${name} NAMESPACE isentrope:: DESTINATION ${package} COMPONENT development)
endforeach()
install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/isentrope DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
  COMPONENT development FILES_MATCHING PATTERN *.h)
configure_package_config_file(${CMAKE_CURRENT_LIST_DIR}/isentrope-config.cmake.in
  ${PROJECT_BINARY_DIR}/isentrope-config.cmake INSTALL_DESTINATION ${package})
# Before 1.0 a minor version may change anything.
write_basic_package_version_file(${PROJECT_BINARY_DIR}/isentrope-config-version.cmake
  COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/isentrope-config.cmake ${PROJECT_BINARY_DIR}/isentrope-config-version.cmake
  DESTINATION ${package} COMPONENT development)

# The folder of a .pc file leads to its prefix, so that an installed tree may be moved.
file(RELATIVE_PATH to_prefix /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
foreach(file isentrope isentrope-core)
  configure_file(${CMAKE_CURRENT_LIST_DIR}/${file}.pc.in ${PROJECT_BINARY_DIR}/${file}.pc @ONLY)
  install(FILES ${PROJECT_BINARY_DIR}/${file}.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig
    COMPONENT development)
endforeach()

if(ISENTROPE_PROGRAMS)
  # cli/ is not read yet: its target is named when the install script is written.
  install(PROGRAMS $<TARGET_FILE:isentrope> DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT programs)
endif()
