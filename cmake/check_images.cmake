# cmake -DPROGRAMS=a;b -DARCHITECTURES=80-real;90 -DCUOBJDUMP=... -P check_images.cmake: each program has
# kernels for each of these architectures, as CMAKE_CUDA_ARCHITECTURES counts them, and PTX of the
# newest, which the drivers of newer cards compile.
foreach(_program IN LISTS PROGRAMS)
  foreach(_kind IN ITEMS elf ptx)
    execute_process(COMMAND "${CUOBJDUMP}" --list-${_kind} "${_program}" OUTPUT_VARIABLE _${_kind}
                    ERROR_VARIABLE _said COMMAND_ERROR_IS_FATAL ANY)
  endforeach()
  set(_newest 0)
  foreach(_architecture IN LISTS ARCHITECTURES)
    string(REGEX MATCH "^[0-9]+" _number "${_architecture}")
    if(NOT _number)  # native, all
      continue()
    endif()
    if(NOT _architecture MATCHES "virtual" AND NOT _elf MATCHES "sm_${_number}[^0-9]")
      message(FATAL_ERROR "${_program} has no kernels for sm_${_number}")
    endif()
    if(_number GREATER _newest)
      set(_newest ${_number})
    endif()
  endforeach()
  if(_newest AND NOT _ptx MATCHES "sm_${_newest}[^0-9]")
    message(FATAL_ERROR "${_program} has no PTX of sm_${_newest}: newer cards could not run it")
  endif()
endforeach()
