# cmake -DARCHIVE=... -DPROGRAMS=a;b -P check_package.cmake: the archive must stay portable, and the
# programs must start where there is neither a driver nor CUDA.
file(SIZE "${ARCHIVE}" _bytes)
math(EXPR _most "50 << 20")
if(_bytes GREATER _most)
  message(FATAL_ERROR "${ARCHIVE} has ${_bytes} bytes: expected ${_most} at most")
endif()
include("${CMAKE_CURRENT_LIST_DIR}/check_links.cmake")
message(STATUS "${ARCHIVE}: ${_bytes} bytes")
