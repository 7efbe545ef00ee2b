# Finds NCCL: NCCL_INCLUDE_DIR, and NCCL_LIBRARY, which programs load at run time. In NCCL_ROOT, in the
# CUDA toolkit, in the system, or in the folder of its Python wheel (nvidia-nccl-cu12,
# nvidia-nccl-cu13), which has no link without a version to its library.
include(ConvlabPythonWheels)
convlab_python_wheels(_nccl_wheels nccl)
find_path(NCCL_INCLUDE_DIR nccl.h
          HINTS ${CUDAToolkit_TARGET_DIR} ${CUDAToolkit_LIBRARY_ROOT} /usr/local/cuda ${_nccl_wheels}
          PATH_SUFFIXES include)
# Beside that header, also where it is a link into the toolkit.
get_filename_component(_nccl_real "${NCCL_INCLUDE_DIR}/nccl.h" REALPATH)
get_filename_component(_nccl_real "${_nccl_real}/../.." ABSOLUTE)
find_library(NCCL_LIBRARY NAMES nccl libnccl.so.2
             HINTS "${NCCL_INCLUDE_DIR}/.." "${_nccl_real}" NO_DEFAULT_PATH
             PATH_SUFFIXES lib lib64 lib/${CMAKE_LIBRARY_ARCHITECTURE})
mark_as_advanced(NCCL_INCLUDE_DIR NCCL_LIBRARY)

if(NCCL_INCLUDE_DIR)
  file(READ "${NCCL_INCLUDE_DIR}/nccl.h" _nccl_text)
  foreach(_part MAJOR MINOR PATCH)
    string(REGEX MATCH "#define NCCL_${_part} +([0-9]+)" _ "${_nccl_text}")
    set(_nccl_${_part} ${CMAKE_MATCH_1})
  endforeach()
  set(NCCL_VERSION "${_nccl_MAJOR}.${_nccl_MINOR}.${_nccl_PATCH}")
endif()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(NCCL REQUIRED_VARS NCCL_LIBRARY NCCL_INCLUDE_DIR
                                       VERSION_VAR NCCL_VERSION)
