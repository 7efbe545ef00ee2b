# cmake -DARCHIVE=... -DPROGRAMS=a;b -P check_package.cmake: the archive must stay portable, and the
# programs must start where there is no driver, so they may not link what only a driver brings.
file(SIZE "${ARCHIVE}" _bytes)
math(EXPR _most "50 << 20")
if(_bytes GREATER _most)
  message(FATAL_ERROR "${ARCHIVE} has ${_bytes} bytes: expected ${_most} at most")
endif()
foreach(_program IN LISTS PROGRAMS)
  execute_process(COMMAND readelf --dynamic "${_program}" OUTPUT_VARIABLE _dynamic
                  COMMAND_ERROR_IS_FATAL ANY)
  if(_dynamic MATCHES "lib(cuda|nvidia-ml)\\.so")
    message(FATAL_ERROR "${_program} links ${CMAKE_MATCH_0}, which only a driver brings")
  endif()
endforeach()
message(STATUS "${ARCHIVE}: ${_bytes} bytes")
