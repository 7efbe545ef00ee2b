# cmake -DPROGRAMS=a;b -P check_links.cmake: the programs may need no library of CUDA's or its
# driver's to start. They load at run time what a card takes.
foreach(_program IN LISTS PROGRAMS)
  execute_process(COMMAND ldd "${_program}" OUTPUT_VARIABLE _libraries COMMAND_ERROR_IS_FATAL ANY)
  if(_libraries MATCHES "lib(cuda|cublas|cufft|cudnn|cupti|nv)[^ ]*")
    message(FATAL_ERROR "${_program} links ${CMAKE_MATCH_0}: expected no library of CUDA's")
  endif()
endforeach()
