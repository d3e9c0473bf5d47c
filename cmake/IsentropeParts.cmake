# Parts with missing dependencies are left out, with a message that names them: the core and its tests need only Highway
# and GoogleTest. Parts requested by an option, such as ISENTROPE_TORCH, are required.

# isentrope_missing(RESULT NEED...): lists the missing needs. A need is a target, a package looked for by
# find_package(), or a variable with a search result.
function(isentrope_missing result)
  set(missing "")
  foreach(need IN LISTS ARGN)
    if(NOT (TARGET ${need} OR ${need}_FOUND OR ${need}))
      list(APPEND missing ${need})
    endif()
  endforeach()
  set(${result} "${missing}" PARENT_SCOPE)
endfunction()

# isentrope_left_out(PART MISSING): prints that a part is left out.
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
