# Writes the checked-out commit to a header, which keeps its time when nothing changed:
# cmake -DSOURCE=repository -DHEADER=file -P commit.cmake
execute_process(COMMAND git -C ${SOURCE} describe --always --dirty --abbrev=12 --exclude=*
                OUTPUT_VARIABLE commit RESULT_VARIABLE failed ERROR_QUIET
                OUTPUT_STRIP_TRAILING_WHITESPACE)
if(failed)
  set(commit unknown)
endif()
file(CONFIGURE OUTPUT ${HEADER} CONTENT "#define CONVLAB_COMMIT \"${commit}\"\n")
