# cmake -DPROGRAMS=a;b -P check_links.cmake: the programs may need no library of CUDA's or its
# driver's to start: they load at run time what a card takes. Nor may they look for libraries in the
# current folder, as an empty entry of RUNPATH says.
foreach(_program IN LISTS PROGRAMS)
  execute_process(COMMAND ldd "${_program}" OUTPUT_VARIABLE _libraries COMMAND_ERROR_IS_FATAL ANY)
  if(_libraries MATCHES "lib(cuda|cublas|cufft|cudnn|cupti|nv)[^ ]*")
    message(FATAL_ERROR "${_program} links ${CMAKE_MATCH_0}: expected no library of CUDA's")
  endif()
  execute_process(COMMAND readelf --dynamic "${_program}" OUTPUT_VARIABLE _dynamic
                  COMMAND_ERROR_IS_FATAL ANY)
  if(_dynamic MATCHES "path: .(:|[^\n]*::|[^\n]*:.\n)")
    message(FATAL_ERROR "${_program} has an empty entry in its RUNPATH")
  endif()
endforeach()
