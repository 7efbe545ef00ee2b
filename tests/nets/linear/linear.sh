#!/usr/bin/env bash
# Readers do work in proportion to what they read, as callgrind counts it: of inputs of n, 2n and 4n
# entries, the last step takes twice what the first takes. A reader that compares every entry with
# every other takes four times as much.
#
#   linear.sh PROGRAM
#
# Exits 77, skipped, without valgrind.
set -u
if ! command -v valgrind >/dev/null; then
  echo "skipped: no valgrind on PATH (cmake/debian-packages.txt)"
  exit 77
fi
work=$(mktemp -d) || exit 3
trap 'rm -rf "$work"' EXIT
if ! valgrind --tool=callgrind --collect-atstart=no --toggle-collect=counted_run \
  --dump-after=counted_run --combine-dumps=yes --callgrind-out-file="$work/dumps" \
  "$1" >"$work/names" 2>"$work/log"; then
  cat "$work/log"
  exit 1
fi
sed -n 's/^totals: //p' "$work/dumps" | head -n $((3 * $(wc -l <"$work/names"))) | paste - - - |
  paste "$work/names" - | awk -F '\t' '
  {
    ratio = $3 > $2 ? ($4 - $3) / ($3 - $2) : 0
    printf "%s: %d, %d, %d instructions: the second step takes %.2f of the first\n", $1, $2, $3, $4, ratio
    if (ratio < 1.5 || ratio > 2.6) failed = 1
  }
  END { exit failed || !NR }'
