# cmake -DARCHIVE=... -DPROGRAMS=a;b -DARCHITECTURES=80-real;90 -DCUOBJDUMP=... -P check_package.cmake:
# the archive must stay portable, and the programs must start where there is neither a driver nor CUDA,
# and have kernels for each of these cards, and PTX for newer ones.
file(SIZE "${ARCHIVE}" _bytes)
math(EXPR _most "120 << 20")
if(_bytes GREATER _most)
  message(FATAL_ERROR "${ARCHIVE} has ${_bytes} bytes: expected ${_most} at most")
endif()
include("${CMAKE_CURRENT_LIST_DIR}/check_links.cmake")
if(CUOBJDUMP)
  include("${CMAKE_CURRENT_LIST_DIR}/check_images.cmake")
else()
  message(WARNING "there is no cuobjdump: for which cards ${ARCHIVE} has kernels is not checked")
endif()
message(STATUS "${ARCHIVE}: ${_bytes} bytes")
