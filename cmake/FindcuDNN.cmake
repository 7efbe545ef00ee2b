# Finds cuDNN: cuDNN_INCLUDE_DIR, and cuDNN_LIBRARY, which programs load at run time. In cuDNN_ROOT, in the CUDA toolkit, in
# the system, or in the folder of its Python wheel (nvidia-cudnn-cu12, nvidia-cudnn-cu13), which has
# no link without a version to its library.
include(ConvlabPythonWheels)
convlab_python_wheels(_cudnn_wheels cudnn)
set(_cudnn_hints ${CUDAToolkit_TARGET_DIR} ${CUDAToolkit_LIBRARY_ROOT} /usr/local/cuda
                 ${_cudnn_wheels})

find_path(cuDNN_INCLUDE_DIR cudnn_version.h HINTS ${_cudnn_hints} PATH_SUFFIXES include)
# Only beside that header: one version's header over another's library would load, and crash.
get_filename_component(_cudnn_real "${cuDNN_INCLUDE_DIR}/cudnn_version.h" REALPATH)
get_filename_component(_cudnn_real "${_cudnn_real}/../.." ABSOLUTE)
find_library(cuDNN_LIBRARY NAMES cudnn libcudnn.so.9
             HINTS "${cuDNN_INCLUDE_DIR}/.." "${_cudnn_real}" NO_DEFAULT_PATH
             PATH_SUFFIXES lib lib64 lib/${CMAKE_LIBRARY_ARCHITECTURE})
mark_as_advanced(cuDNN_INCLUDE_DIR cuDNN_LIBRARY)

if(cuDNN_INCLUDE_DIR)
  file(READ "${cuDNN_INCLUDE_DIR}/cudnn_version.h" _cudnn_text)
  foreach(_part MAJOR MINOR PATCHLEVEL)
    string(REGEX MATCH "#define CUDNN_${_part} +([0-9]+)" _ "${_cudnn_text}")
    set(_cudnn_${_part} ${CMAKE_MATCH_1})
  endforeach()
  set(cuDNN_VERSION "${_cudnn_MAJOR}.${_cudnn_MINOR}.${_cudnn_PATCHLEVEL}")
endif()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(cuDNN REQUIRED_VARS cuDNN_LIBRARY cuDNN_INCLUDE_DIR
                                        VERSION_VAR cuDNN_VERSION)
