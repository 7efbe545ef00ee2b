# Looks for CUDA: sets CONVLAB_HAVE_CUDA (nvcc and the runtime: the backend is built),
# CONVLAB_HAVE_CUDNN (its algorithms are built in as peers), CONVLAB_HAVE_NCCL (cards average gradients
# among themselves) and CONVLAB_CUDA_INCLUDE_DIRS (headers, with which tests execute the kernels on the
# CPU).
set(CONVLAB_CUDA AUTO CACHE STRING "The CUDA backend: ON, OFF or AUTO (if nvcc is found)")
set(CONVLAB_CUDNN AUTO CACHE STRING "Peer algorithms from cuDNN: ON, OFF or AUTO (if found)")
set(CONVLAB_NCCL AUTO CACHE STRING "Averages over cards by NCCL: ON, OFF or AUTO (if found)")
foreach(_option CONVLAB_CUDA CONVLAB_CUDNN CONVLAB_NCCL)
  if(NOT ${_option} MATCHES "^(ON|OFF|AUTO)$")
    message(FATAL_ERROR "${_option} is '${${_option}}': expected ON, OFF or AUTO")
  endif()
endforeach()

# The cards of this machine, as CMAKE_CUDA_ARCHITECTURES counts them; Hopper where there is none.
function(convlab_local_architectures result)
  execute_process(COMMAND nvidia-smi --query-gpu=compute_cap --format=csv,noheader
                  OUTPUT_VARIABLE _capabilities RESULT_VARIABLE _failed ERROR_QUIET)
  string(REGEX MATCHALL "[0-9]+\\.[0-9]+" _found "${_capabilities}")
  string(REPLACE "." "" _found "${_found}")
  list(REMOVE_DUPLICATES _found)
  if(_failed OR NOT _found)
    set(_found 90)
  endif()
  set(${result} "${_found}" PARENT_SCOPE)
endfunction()

set(CONVLAB_HAVE_CUDA OFF)
set(_cuda_missing "there is no nvcc: put it on PATH or set CUDACXX")
if(NOT CONVLAB_CUDA STREQUAL "OFF")
  if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
    convlab_local_architectures(_architectures)
    set(CMAKE_CUDA_ARCHITECTURES "${_architectures}" CACHE STRING "Compute capabilities to build for")
  endif()
  include(CheckLanguage)
  check_language(CUDA)
  if(CMAKE_CUDA_COMPILER)
    enable_language(CUDA)
    if(CMAKE_CUDA_COMPILER_VERSION VERSION_LESS 12)
      set(_cuda_missing "CUDA is ${CMAKE_CUDA_COMPILER_VERSION}, 12 or newer is needed")
    else()
      find_package(CUDAToolkit REQUIRED)
      # CMake 3.25.1 (Debian 12) does not know that nvcc speaks C++20.
      if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)
        set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)
        set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION -std=c++20)
      endif()
      set(CMAKE_CUDA_STANDARD 20)
      set(CMAKE_CUDA_STANDARD_REQUIRED ON)
      set(CMAKE_CUDA_EXTENSIONS OFF)
      set(CONVLAB_HAVE_CUDA ON)
    endif()
  endif()
endif()

set(CONVLAB_HAVE_CUDNN OFF)
if(CONVLAB_HAVE_CUDA)
  message(STATUS "CUDA backend: CUDA ${CUDAToolkit_VERSION} for ${CMAKE_CUDA_ARCHITECTURES}")
  if(CONVLAB_CUDNN STREQUAL "ON")
    find_package(cuDNN 9.8 REQUIRED)
  elseif(CONVLAB_CUDNN STREQUAL "AUTO")
    find_package(cuDNN 9.8)
  endif()
  if(cuDNN_FOUND)
    set(CONVLAB_HAVE_CUDNN ON)
    message(STATUS "cuDNN ${cuDNN_VERSION}: its algorithms are built in as peers")
  else()
    message(STATUS "No cuDNN (CONVLAB_CUDNN=${CONVLAB_CUDNN}): `pip install nvidia-cudnn-cu13` offers "
                   "it to every build on this machine; its algorithms are left out")
  endif()
elseif(CONVLAB_CUDA STREQUAL "ON")
  message(FATAL_ERROR "CONVLAB_CUDA is ON, but ${_cuda_missing}")
elseif(CONVLAB_CUDA STREQUAL "OFF")
  message(STATUS "No CUDA backend (CONVLAB_CUDA=OFF)")
else()
  message(STATUS "No CUDA backend: ${_cuda_missing}")
endif()

# Its header is enough for the tests that replace it.
set(CONVLAB_HAVE_NCCL OFF)
if(CONVLAB_NCCL STREQUAL "ON")
  find_package(NCCL 2.13 REQUIRED)
elseif(CONVLAB_NCCL STREQUAL "AUTO")
  find_package(NCCL 2.13)
endif()
if(NCCL_FOUND)
  set(CONVLAB_HAVE_NCCL ON)
endif()
if(CONVLAB_HAVE_CUDA AND CONVLAB_HAVE_NCCL)
  message(STATUS "NCCL ${NCCL_VERSION}: cards average gradients among themselves")
elseif(CONVLAB_HAVE_CUDA)
  message(STATUS "No NCCL (CONVLAB_NCCL=${CONVLAB_NCCL}): `pip install nvidia-nccl-cu13` offers it to "
                 "every build on this machine; gradients of several cards travel through the hosts")
endif()

# The headers are in every toolkit, and in Python's wheels of it (nvidia-cuda-runtime and the
# nvidia-cuda-cccl and nvidia-cuda-crt beside it), where nvcc need not be.
include(ConvlabPythonWheels)
convlab_python_wheels(_wheels cu13 cuda_runtime cuda_cccl cuda_nvcc)
list(TRANSFORM _wheels APPEND /include)
find_path(CONVLAB_CUDA_INCLUDE_DIR driver_types.h
          HINTS ${CUDAToolkit_INCLUDE_DIRS} /usr/local/cuda/include ${_wheels})
find_path(CONVLAB_CUDA_CCCL_INCLUDE_DIR nv/target
          HINTS "${CONVLAB_CUDA_INCLUDE_DIR}" ${_wheels} PATH_SUFFIXES cccl)
find_path(CONVLAB_CUDA_CRT_INCLUDE_DIR crt/host_defines.h
          HINTS "${CONVLAB_CUDA_INCLUDE_DIR}" ${_wheels})
mark_as_advanced(CONVLAB_CUDA_INCLUDE_DIR CONVLAB_CUDA_CCCL_INCLUDE_DIR
                 CONVLAB_CUDA_CRT_INCLUDE_DIR)
set(CONVLAB_CUDA_INCLUDE_DIRS)
if(CONVLAB_CUDA_INCLUDE_DIR AND CONVLAB_CUDA_CCCL_INCLUDE_DIR AND CONVLAB_CUDA_CRT_INCLUDE_DIR)
  set(CONVLAB_CUDA_INCLUDE_DIRS ${CONVLAB_CUDA_INCLUDE_DIR} ${CONVLAB_CUDA_CCCL_INCLUDE_DIR}
                                ${CONVLAB_CUDA_CRT_INCLUDE_DIR})
  list(REMOVE_DUPLICATES CONVLAB_CUDA_INCLUDE_DIRS)
elseif(CONVLAB_TESTS)
  # CI and developers must not miss that; elsewhere the rest can be tested.
  set(_severity WARNING)
  if(CONVLAB_WERROR)
    set(_severity FATAL_ERROR)
  endif()
  message(${_severity} "CUDA's kernels cannot be tested for want of CUDA's headers: "
          "`python3 -m pip install nvidia-cuda-runtime nvidia-cuda-cccl nvidia-cuda-crt` brings them")
endif()
