# Finds oneDNN 2.6 or newer (2.x and 3.x) by its header and library: target oneDNN::dnnl.
#
# oneDNN's own config file is not used, because Debian's demands OpenCL's development files, which
# only its GPU side needs. dnnl_DIR, dnnl_ROOT and CMAKE_PREFIX_PATH work as they would with it.
set(_onednn_hints ${dnnl_ROOT} $ENV{dnnl_ROOT})
if(dnnl_DIR)
  # lib/cmake/dnnl and lib/<multiarch>/cmake/dnnl
  list(APPEND _onednn_hints "${dnnl_DIR}/../../.." "${dnnl_DIR}/../../../..")
endif()

find_path(oneDNN_INCLUDE_DIR oneapi/dnnl/dnnl.hpp HINTS ${_onednn_hints} PATH_SUFFIXES include)
# Only beside that header: 3.x headers over a 2.x library would link, and crash.
find_library(oneDNN_LIBRARY dnnl HINTS "${oneDNN_INCLUDE_DIR}/.." NO_DEFAULT_PATH
             PATH_SUFFIXES lib lib64 lib/${CMAKE_LIBRARY_ARCHITECTURE})
mark_as_advanced(oneDNN_INCLUDE_DIR oneDNN_LIBRARY)

if(oneDNN_INCLUDE_DIR)
  file(READ "${oneDNN_INCLUDE_DIR}/oneapi/dnnl/dnnl_version.h" _onednn_text)
  foreach(_part MAJOR MINOR PATCH)
    string(REGEX MATCH "#define DNNL_VERSION_${_part} +([0-9]+)" _ "${_onednn_text}")
    set(_onednn_${_part} ${CMAKE_MATCH_1})
  endforeach()
  set(oneDNN_VERSION "${_onednn_MAJOR}.${_onednn_MINOR}.${_onednn_PATCH}")
endif()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(oneDNN REQUIRED_VARS oneDNN_LIBRARY oneDNN_INCLUDE_DIR
                                         VERSION_VAR oneDNN_VERSION)
if(oneDNN_FOUND AND NOT TARGET oneDNN::dnnl)
  add_library(oneDNN::dnnl UNKNOWN IMPORTED)
  set_target_properties(oneDNN::dnnl PROPERTIES
    IMPORTED_LOCATION "${oneDNN_LIBRARY}"
    INTERFACE_INCLUDE_DIRECTORIES "${oneDNN_INCLUDE_DIR}")
endif()
