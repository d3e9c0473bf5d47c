# Parts with missing dependencies are left out, with a message that names them, unless an option such as ISENTROPE_TORCH
# requests them. The core and its tests need only Highway and GoogleTest.

# isentrope_missing(RESULT NEED...): lists missing targets, packages of find_package(), and variables of search results.
function(isentrope_missing result)
  set(missing "")
  foreach(need IN LISTS ARGN)
    if(NOT (TARGET ${need} OR ${need}_FOUND OR ${need}))
      list(APPEND missing ${need})
    endif()
  endforeach()
  set(${result} "${missing}" PARENT_SCOPE)
endfunction()

function(isentrope_left_out part missing)
  list(JOIN missing ", " missing)
  message(NOTICE "Isentrope: ${part} is left out; not found: ${missing}")
endfunction()

# isentrope_needs(PART NEED...): returns from a part's CMakeLists.txt if a need is missing.
macro(isentrope_needs part)
  isentrope_missing(missing ${ARGN})
  if(missing)
    isentrope_left_out("${part}" "${missing}")
    return()
  endif()
endmacro()
