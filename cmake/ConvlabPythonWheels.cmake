# convlab_python_wheels(result cudnn cu13 ...): the folders of these parts of CUDA that Python's
# wheels have installed (site-packages/nvidia/cudnn ...), of the python3 on PATH.
function(convlab_python_wheels result)
  execute_process(
    COMMAND python3 -c "import importlib.util as u; s = u.find_spec('nvidia'); \
print(';'.join(s.submodule_search_locations) if s else '')"
    OUTPUT_VARIABLE _roots OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  set(_found)
  foreach(_root IN LISTS _roots)
    foreach(_part IN LISTS ARGN)
      if(IS_DIRECTORY "${_root}/${_part}")
        list(APPEND _found "${_root}/${_part}")
      endif()
    endforeach()
  endforeach()
  set(${result} "${_found}" PARENT_SCOPE)
endfunction()
