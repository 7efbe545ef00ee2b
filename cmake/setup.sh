# Sourced by ./convlab, tests/run and .ci/run, in the repository's root: packages, and running one
# stage of a build with its output in a log. Everything printed goes to stderr.

say() { echo "convlab: $*" >&2; }

# log_with_progress: appends its input to $log, and shows how far Ninja is, by its [n/N], on stderr: in
# place on a terminal, otherwise a line every tenth of the way or every 20 s.
log_with_progress() {
  local line n of said=0 said_at=$SECONDS drawn=
  while IFS= read -r line || [[ -n $line ]]; do
    printf '%s\n' "$line" >>"$log"
    [[ $line =~ ^\[([0-9]+)/([0-9]+)\] ]] || continue
    n=${BASH_REMATCH[1]} of=${BASH_REMATCH[2]}
    if [[ -t 2 ]]; then
      printf '\r\033[Kconvlab: %s of %s' "$n" "$of" >&2
      drawn=yes
    elif ((n * 10 / of > said || SECONDS - said_at >= 20)); then
      say "$n of $of"
      said=$((n * 10 / of)) said_at=$SECONDS
    fi
  done
  [[ -z $drawn ]] || printf '\r\033[K' >&2
}

# stage "what happens" COMMAND...: one line on stderr that names the log, then progress; the output
# appended to $log; on failure the log's tail, on success the time if it was long.
stage() {
  local what=$1 start=$SECONDS
  shift
  say "$what; log: $log"
  printf '\n== %s: %s\n' "$what" "$*" >>"$log"
  local log_input writer status
  exec {log_input}> >(log_with_progress)
  writer=$!
  NINJA_STATUS='[%f/%t] ' "$@" >&"$log_input" 2>&1 {log_input}>&-
  status=$?
  exec {log_input}>&-
  wait "$writer"  # until all is in the log
  if ((status == 0)); then
    ((SECONDS - start < 60)) || say "$what took $((SECONDS - start)) s"
    return 0
  fi
  say "$what failed after $((SECONDS - start)) s; the end of $log:"
  tail -n 30 "$log" >&2
  return 1
}

# missing_packages run test: the packages of these groups that are not installed, one a line.
missing_packages() {
  local group name wanted=" $* " names=()
  while read -r group name; do
    [[ $wanted == *" $group "* ]] && names+=("$name")
  done <cmake/debian-packages.txt
  comm -23 <(printf '%s\n' "${names[@]}" | sort) <(
    dpkg-query -W -f='${db:Status-Status} ${Package}\n' "${names[@]}" 2>/dev/null |
      sed -n 's/^installed //p' | sort -u)
}

# require_packages run test: installs what is missing from these groups, or says how and exits 3.
# Elsewhere than on Debian and its descendants it leaves the question to CMake.
require_packages() {
  command -v dpkg-query >/dev/null && command -v apt-get >/dev/null || return 0
  local missing as_root=()
  mapfile -t missing < <(missing_packages "$@")
  ((${#missing[@]})) || return 0
  local install=(apt-get install -y --no-install-recommends "${missing[@]}")
  if ((EUID != 0)); then
    if ! command -v sudo >/dev/null || ! sudo -n true 2>/dev/null; then
      say "packages are missing and this user may not install them. As root:"
      echo "apt-get update && ${install[*]}" >&2
      exit 3
    fi
    as_root=(sudo -n)
  fi
  as_root+=(env DEBIAN_FRONTEND=noninteractive)
  stage "fetching the package lists" "${as_root[@]}" apt-get update || exit 3
  stage "installing ${missing[*]}" "${as_root[@]}" "${install[@]}" || exit 3
}

# cuda_parts: what the tests want of CUDA and this machine lacks (headers to execute kernels on the
# CPU with; where there is nvcc, the tools that show what it made), from PyPI into build-cuda/.
# Without network the tests that need it do not exist, or skip.
cuda_parts() {
  local parts=build-cuda/nvidia/cu13 wanted=()
  if command -v nvcc >/dev/null || [[ -x /usr/local/cuda/bin/nvcc ]]; then
    PATH=$PATH:/usr/local/cuda/bin:$PWD/$parts/bin
    command -v cuobjdump nvdisasm >/dev/null || wanted+=(nvidia-cuda-cuobjdump nvidia-cuda-nvdisasm)
  else
    export CMAKE_INCLUDE_PATH=$PWD/$parts/include
    [[ -e $parts/include/driver_types.h ]] ||
      wanted+=(nvidia-cuda-runtime nvidia-cuda-cccl nvidia-cuda-crt)
  fi
  ((${#wanted[@]} == 0)) ||
    stage "fetching ${wanted[*]}" python3 -m pip install --target build-cuda "${wanted[@]}" || true
}

# build_preset release [CMAKE-ARGUMENTS...]: configures and builds everything in build-release.
build_preset() {
  local preset=$1
  shift
  command -v ccache >/dev/null &&
    set -- -DCMAKE_CXX_COMPILER_LAUNCHER=ccache -DCMAKE_CUDA_COMPILER_LAUNCHER=ccache "$@"
  stage "configuring preset $preset" cmake --preset "$preset" "$@" || return 1
  stage "building preset $preset" cmake --build "build-$preset" -j "$(nproc)"
}

# run_tests DIR [CTEST-ARGUMENTS...]: runs the tests built in DIR, printing failures as they come;
# sets tests_passed, tests_failed and tests_skipped.
run_tests() {
  local dir=$1
  shift
  say "testing $dir"
  ctest --test-dir "$dir" --output-on-failure --progress -j "$(nproc)" --output-junit convlab-tests.xml "$@" >&2
  local status=$?
  read -r tests_passed tests_failed tests_skipped < <(
    awk 'match($0, /tests="[0-9]+"/) { t = substr($0, RSTART + 7) + 0 }
         match($0, /failures="[0-9]+"/) { f = substr($0, RSTART + 10) + 0 }
         match($0, /skipped="[0-9]+"/) { s = substr($0, RSTART + 9) + 0; print t - f - s, f, s; exit }
        ' "$dir/convlab-tests.xml")
  # What ctest could not even start is in no count.
  ((status && tests_failed == 0)) && tests_failed=1
  return 0
}
