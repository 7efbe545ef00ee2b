# The relocatable package, for a machine that has a card and its driver but no compiler:
# `cmake --preset package && cmake --build --preset package` leaves build-package/convlab-*.tar.gz
# with the program, the tests that need a card, tests/gpu/run with its parts and studies, and every
# shared library that is not the system's. CUDA's own libraries are not linked: they come from the
# machine, or from lib/.
option(CONVLAB_RELOCATABLE "Offer the target `tgz`: a package with the shared libraries it needs" OFF)
if(NOT CONVLAB_RELOCATABLE)
  return()
endif()
if(NOT TARGET convlab_gpu_tests)
  message(FATAL_ERROR "CONVLAB_RELOCATABLE needs CONVLAB_CUDA=ON and CONVLAB_TESTS=ON")
endif()
if(CONVLAB_FFTW)
  message(FATAL_ERROR "CONVLAB_RELOCATABLE needs CONVLAB_FFTW=OFF: FFTW may not be shipped with CUDA")
endif()

set(_programs convlab convlab_gpu_tests)
if(TARGET micro_gemm_cuda)  # Google Benchmark is there
  list(APPEND _programs micro_gemm_cuda)
endif()
# DT_RPATH, which unlike DT_RUNPATH also serves the libraries' own dependencies.
set_target_properties(${_programs} PROPERTIES INSTALL_RPATH "$ORIGIN/../lib")
foreach(_program IN LISTS _programs)
  target_link_options(${_program} PRIVATE -Wl,--disable-new-dtags)
  list(APPEND _files $<TARGET_FILE:${_program}>)
endforeach()

install(TARGETS ${_programs} RUNTIME_DEPENDENCY_SET convlab_runtime
        RUNTIME DESTINATION bin COMPONENT package EXCLUDE_FROM_ALL)
# What every GNU/Linux has is left out.
install(RUNTIME_DEPENDENCY_SET convlab_runtime
  PRE_EXCLUDE_REGEXES "^ld-linux" "^lib(c|m|dl|rt|pthread|stdc\\+\\+|gcc_s)\\.so"
  POST_EXCLUDE_REGEXES "^/lib64/ld-linux"
  DIRECTORIES /usr/lib/x86_64-linux-gnu
  LIBRARY DESTINATION lib COMPONENT package EXCLUDE_FROM_ALL)
install(PROGRAMS tests/gpu/run DESTINATION tests/gpu COMPONENT package EXCLUDE_FROM_ALL)
install(FILES tests/gpu/judge.py tests/gpu/lab.py tests/gpu/report.py
              tests/gpu/layers.txt tests/gpu/problems.txt
        DESTINATION tests/gpu COMPONENT package EXCLUDE_FROM_ALL)
install(DIRECTORY bench/studies DESTINATION bench COMPONENT package EXCLUDE_FROM_ALL
        FILES_MATCHING PATTERN "*.py")
install(FILES bench/reports/algo_marks.json
        DESTINATION bench/reports COMPONENT package EXCLUDE_FROM_ALL)
install(FILES README.md LICENSE DESTINATION . COMPONENT package EXCLUDE_FROM_ALL)

set(CPACK_GENERATOR TGZ)
set(CPACK_COMPONENTS_ALL package)
set(CPACK_ARCHIVE_COMPONENT_INSTALL ON)
set(CPACK_COMPONENTS_GROUPING ALL_COMPONENTS_IN_ONE)
list(JOIN CMAKE_CUDA_ARCHITECTURES "-" _architectures)
string(REPLACE "-real" "" _architectures "${_architectures}")
set(_package "convlab-${PROJECT_VERSION}-${CMAKE_SYSTEM_PROCESSOR}-sm${_architectures}")
set(CPACK_PACKAGE_FILE_NAME ${_package})  # CPack changes it
set(CPACK_COMPONENT_INCLUDE_TOPLEVEL_DIRECTORY ON)
set(CPACK_STRIP_FILES ON)
set(CMAKE_SKIP_INSTALL_ALL_DEPENDENCY ON)
include(CPack)
# In the toolkit, or by itself: pip install nvidia-cuda-cuobjdump.
find_program(CONVLAB_CUOBJDUMP cuobjdump HINTS ${CUDAToolkit_BIN_DIR})
add_custom_target(tgz COMMAND ${CMAKE_CPACK_COMMAND} -B ${PROJECT_BINARY_DIR}
                  COMMAND ${CMAKE_COMMAND}
                    -DARCHIVE=${PROJECT_BINARY_DIR}/${_package}.tar.gz
                    "-DPROGRAMS=${_files}"
                    "-DARCHITECTURES=${CMAKE_CUDA_ARCHITECTURES}"
                    "-DCUOBJDUMP=${CONVLAB_CUOBJDUMP}"
                    -P ${PROJECT_SOURCE_DIR}/cmake/check_package.cmake
                  WORKING_DIRECTORY ${PROJECT_BINARY_DIR} VERBATIM
                  COMMENT "Packing ${_package}.tar.gz")
add_dependencies(tgz ${_programs})
