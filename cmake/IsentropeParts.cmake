# Parts of the project whose needs are not met are left out, with a message that names what is missing: the core and
# its tests ask for nothing but Highway and GoogleTest. What an option asks for, ISENTROPE_TORCH say, is required.

# isentrope_missing(RESULT NEED...): the needs that are not met. A need is a target, a package that find_package() was
# asked for, or a variable that holds what was found.
function(isentrope_missing result)
  set(missing "")
  foreach(need IN LISTS ARGN)
    if(NOT (TARGET ${need} OR ${need}_FOUND OR ${need}))
      list(APPEND missing ${need})
    endif()
  endforeach()
  set(${result} "${missing}" PARENT_SCOPE)
endfunction()

# isentrope_left_out(PART MISSING): says so.
function(isentrope_left_out part missing)
  list(JOIN missing ", " missing)
  message(NOTICE "Isentrope: ${part} is left out; not found: ${missing}")
endfunction()

# isentrope_needs(PART NEED...): in a part's CMakeLists.txt, ends it where a need is not met.
macro(isentrope_needs part)
  isentrope_missing(missing ${ARGN})
  if(missing)
    isentrope_left_out("${part}" "${missing}")
    return()
  endif()
endmacro()
