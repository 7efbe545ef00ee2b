# libzip through pkg-config: target LibZip::LibZip. Its own package file asks for programs that
# Debian's libzip-dev does not bring.
find_package(PkgConfig QUIET)
if(PkgConfig_FOUND)
  pkg_check_modules(LibZip QUIET IMPORTED_TARGET libzip)
endif()
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(LibZip REQUIRED_VARS LibZip_LINK_LIBRARIES
                                         VERSION_VAR LibZip_VERSION)
if(LibZip_FOUND AND NOT TARGET LibZip::LibZip)
  add_library(LibZip::LibZip ALIAS PkgConfig::LibZip)
endif()
