# FFTW in both precisions, through pkg-config: target FFTW::FFTW.
find_package(PkgConfig QUIET)
if(PkgConfig_FOUND)
  pkg_check_modules(FFTW QUIET IMPORTED_TARGET fftw3f fftw3)
endif()
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(FFTW REQUIRED_VARS FFTW_LINK_LIBRARIES
                                       VERSION_VAR FFTW_fftw3f_VERSION)
if(FFTW_FOUND AND NOT TARGET FFTW::FFTW)
  add_library(FFTW::FFTW ALIAS PkgConfig::FFTW)
endif()
