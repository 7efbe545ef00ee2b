#!/usr/bin/env bash
# How many instructions the CPU's kernels take, as callgrind counts them: a figure that, unlike time,
# is the same on every machine and on a busy one.
#
#   instructions.sh PROGRAM COMPILER          compares with counts.txt
#   instructions.sh --renew PROGRAM COMPILER  writes it
#
# PROGRAM is convlab_instructions, COMPILER what built it ("GNU-12"). Valgrind knows no AVX-512, so
# the kernels' AVX2 build is counted: the same source. A count that left its tolerance in either
# direction fails; one that fell is worth renewing. Exits 77, skipped, without valgrind or for
# another compiler than that of the counts.
set -u
counts=$(dirname "$0")/counts.txt tolerance=3  # percent
# By chance malloc finds its chunks at once or searches its bins: so many instructions, as seen, in
# the smallest problems.
chance=400
[[ $1 == --renew ]] && renew=1 && shift
program=$1 compiler=$2
if ! command -v valgrind >/dev/null; then
  echo "skipped: no valgrind on PATH (cmake/debian-packages.txt)"
  exit 77
fi
known=$(sed -n 's/^# counted with //p' "$counts")
if [[ ! ${renew-} && $known != "$compiler" ]]; then
  echo "skipped: the counts are of $known, this is $compiler"
  exit 77
fi

work=$(mktemp -d) || exit 3
trap 'rm -rf "$work"' EXIT
# A dump at the end of each counted_run, all into one file; the program names them in order.
if ! OPENBLAS_NUM_THREADS=1 valgrind --tool=callgrind --collect-atstart=no \
  --toggle-collect=counted_run --dump-after=counted_run --combine-dumps=yes \
  --callgrind-out-file="$work/dumps" "$program" >"$work/names" 2>"$work/log"; then
  cat "$work/log"
  exit 1
fi
# The last dump is of what comes after the last run: nothing.
sed -n 's/^totals: //p' "$work/dumps" | head -n "$(wc -l <"$work/names")" |
  paste -d ' ' - "$work/names" >"$work/counts"

if [[ ${renew-} ]]; then
  {
    echo "# instructions, problem, pass, algorithm, config; renewed by tests/kernels_cpu/instructions/instructions.sh --renew"
    echo "# counted with $compiler"
    cat "$work/counts"
  } >"$counts"
  exit
fi
awk -v tolerance=$tolerance -v chance=$chance '
  /^#/ { next }
  { count = $1; sub(/^[0-9]+ /, "") }
  NR == FNR { expected[$0] = count; next }
  !($0 in expected) { print "not in counts.txt: " $0; failed = 1; next }
  {
    percent = 100 * (count / expected[$0] - 1)
    change = count - expected[$0]
    ++seen
    if ((percent > tolerance && change > chance) || (percent < -tolerance && -change > chance)) {
      printf "%+.1f%%: %d instead of %d: %s\n", percent, count, expected[$0], $0
      failed = 1
    }
    delete expected[$0]
  }
  END {
    for (name in expected) { print "was not run: " name; failed = 1 }
    print seen + 0 " counts"
    exit failed || !seen
  }' "$counts" "$work/counts"
