# OpenBLAS with CBLAS, its OpenMP build where the distribution offers several side by side (Debian's
# libopenblas-openmp-dev). Target: OpenBLAS::OpenBLAS.
find_path(OpenBLAS_INCLUDE_DIR cblas.h PATH_SUFFIXES openblas-openmp openblas)
find_library(OpenBLAS_LIBRARY openblas PATH_SUFFIXES openblas-openmp openblas)
mark_as_advanced(OpenBLAS_INCLUDE_DIR OpenBLAS_LIBRARY)

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(OpenBLAS
  REQUIRED_VARS OpenBLAS_LIBRARY OpenBLAS_INCLUDE_DIR
  REASON_FAILURE_MESSAGE "on Debian: apt install libopenblas-openmp-dev")

if(OpenBLAS_FOUND AND NOT TARGET OpenBLAS::OpenBLAS)
  add_library(OpenBLAS::OpenBLAS UNKNOWN IMPORTED)
  set_target_properties(OpenBLAS::OpenBLAS PROPERTIES
    IMPORTED_LOCATION "${OpenBLAS_LIBRARY}"
    INTERFACE_INCLUDE_DIRECTORIES "${OpenBLAS_INCLUDE_DIR}")
endif()
