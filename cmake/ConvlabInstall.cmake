# `cmake --install` and what find_package(convlab) needs: libraries, the program, and the package
# files. Each library's convlab_library() installs its public headers (included as "conv/problem.h").
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

set(_package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/convlab)

install(TARGETS convlab_conv convlab_recurrent convlab_kernels_cpu convlab_kernels_cuda
                convlab_autotune convlab_nets convlab_mpi convlab_onnx
        EXPORT convlab
        ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(TARGETS convlab RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})

install(EXPORT convlab NAMESPACE convlab:: FILE convlabTargets.cmake DESTINATION ${_package_dir})
get_target_property(_links convlab_kernels_cpu LINK_LIBRARIES)
set(CONVLAB_HAVE_ONEDNN OFF)
if("oneDNN::dnnl" IN_LIST _links)
  set(CONVLAB_HAVE_ONEDNN ON)
endif()
configure_package_config_file(cmake/convlabConfig.cmake.in
  ${PROJECT_BINARY_DIR}/convlabConfig.cmake INSTALL_DESTINATION ${_package_dir})
write_basic_package_version_file(
  ${PROJECT_BINARY_DIR}/convlabConfigVersion.cmake
  COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/convlabConfig.cmake
              ${PROJECT_BINARY_DIR}/convlabConfigVersion.cmake
              cmake/FindFFTW.cmake cmake/FindLibZip.cmake cmake/FindOpenBLAS.cmake
              cmake/FindoneDNN.cmake
        DESTINATION ${_package_dir})
