# Warnings and sanitizers as interface targets, and the one function that declares a library.

add_library(convlab_build_options INTERFACE)
target_compile_options(convlab_build_options INTERFACE
  $<$<COMPILE_LANGUAGE:CXX>:-Wall;-Wextra>
  $<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=-Wall,-Wextra>)
if(CONVLAB_WERROR)
  target_compile_options(convlab_build_options INTERFACE
    $<$<COMPILE_LANGUAGE:CXX>:-Werror> $<$<COMPILE_LANGUAGE:CUDA>:-Werror=all-warnings;-Xcompiler=-Werror>)
endif()
if(CONVLAB_SANITIZE STREQUAL "address")
  set(_sanitize -fsanitize=address,undefined -fno-sanitize-recover=undefined
                -fno-omit-frame-pointer)
elseif(CONVLAB_SANITIZE STREQUAL "thread")
  set(_sanitize -fsanitize=thread -fno-omit-frame-pointer)
elseif(CONVLAB_SANITIZE)
  message(FATAL_ERROR "CONVLAB_SANITIZE is '${CONVLAB_SANITIZE}': expected address or thread")
endif()
if(CONVLAB_SANITIZE)
  # Instrumented, an object takes twice as long at -O2 -g, and a straight-line kernel minutes.
  foreach(_type RELEASE RELWITHDEBINFO)
    set(CMAKE_CXX_FLAGS_${_type} "-O1 -g1 -DNDEBUG")
  endforeach()
  # Several sources make one object, so that templates are instrumented once for all of them. Highway's
  # kernels opt out: foreach_target.h includes each file again by its own name.
  set(CMAKE_UNITY_BUILD ON)
  set(CMAKE_UNITY_BUILD_BATCH_SIZE 8)
endif()
target_compile_options(convlab_build_options INTERFACE "$<$<COMPILE_LANGUAGE:CXX>:${_sanitize}>")
target_link_options(convlab_build_options INTERFACE ${_sanitize})

# For the program and its tests, which have no long loops: instrumented, flags and JSON compile in half
# the time so. GCC 12 sees an overlap in `"a" + std::string()` that is not there (its bug 105651).
set(CONVLAB_PROGRAM_OPTIONS $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wno-restrict>)
if(CONVLAB_SANITIZE)
  list(APPEND CONVLAB_PROGRAM_OPTIONS -O0)
endif()

# convlab_library(conv PUBLIC_HEADERS a.h SOURCES a.cpp b.cpp): target convlab_conv, alias
# convlab::conv, headers included as "conv/a.h". PUBLIC_HEADERS are those that are installed. They
# include no others: .ci/run compiles each from the installed tree. FOLDER is the library's, if it is
# not its name.
include(GNUInstallDirs)
function(convlab_library name)
  cmake_parse_arguments(ARG "" "FOLDER" "PUBLIC_HEADERS;SOURCES" ${ARGN})
  if(NOT ARG_FOLDER)
    set(ARG_FOLDER ${name})
  endif()
  foreach(_header IN LISTS ARG_PUBLIC_HEADERS)
    get_filename_component(_folder ${ARG_FOLDER}/${_header} DIRECTORY)
    install(FILES ${_header} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/convlab/${_folder})
  endforeach()
  add_library(convlab_${name} STATIC ${ARG_SOURCES})
  add_library(convlab::${name} ALIAS convlab_${name})
  set_target_properties(convlab_${name} PROPERTIES EXPORT_NAME ${name}
                                                   POSITION_INDEPENDENT_CODE ON)
  target_include_directories(convlab_${name} PUBLIC $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}>
                                                    $<INSTALL_INTERFACE:include/convlab>)
  target_link_libraries(convlab_${name} PRIVATE $<BUILD_INTERFACE:convlab_build_options>)
endfunction()

# convlab_alone(a.cpp ...): compiles these sources by themselves: their file-local names clash.
function(convlab_alone)
  set_source_files_properties(${ARGN} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
endfunction()
