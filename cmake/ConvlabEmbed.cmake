# convlab_embed(target name file): `extern const std::string NAME` in namespace convlab, with
# the file's text (no zero bytes), compiled into the target. Pieces, since compilers limit how long a literal may be.
function(convlab_embed target name file)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${file}")
  file(READ "${file}" _hex HEX)
  string(LENGTH "${_hex}" _length)
  set(_pieces "")
  set(_at 0)
  while(_at LESS _length)
    string(SUBSTRING "${_hex}" ${_at} 16000 _piece)
    string(REGEX REPLACE "([0-9a-f][0-9a-f])" "\\\\x\\1" _piece "${_piece}")
    string(APPEND _pieces "    \"${_piece}\",\n")
    math(EXPR _at "${_at} + 16000")
  endwhile()
  set(_source "${CMAKE_CURRENT_BINARY_DIR}/embedded_${name}.cpp")
  file(WRITE "${_source}.new" "// Written by CMake from ${file}.
#include <string>

namespace convlab {
extern const std::string ${name};
const std::string ${name} = [] {
  std::string text;
  for (const char* piece : {\"\",
${_pieces}  })
    text += piece;
  return text;
}();
}  // namespace convlab
")
  execute_process(COMMAND ${CMAKE_COMMAND} -E copy_if_different "${_source}.new" "${_source}")
  target_sources(${target} PRIVATE "${_source}")
endfunction()
