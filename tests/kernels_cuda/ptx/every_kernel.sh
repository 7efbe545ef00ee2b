#!/usr/bin/env bash
# every_kernel.sh PTX LAUNCHED: fails, with their names, if there are kernels in the text PTX that are
# no line of LAUNCHED.
set -u
missing=$(comm -23 <(sed -n 's/^\.entry \([^(]*\)(.*/\1/p' "$1" | sort -u) <(sort -u "$2"))
kernels=$(grep -c '^\.entry ' "$1")
echo "$kernels kernels"
((kernels > 0)) && [[ -z $missing ]] && exit
echo "never launched:"
c++filt <<<"$missing"
exit 1
