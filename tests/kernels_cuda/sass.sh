#!/usr/bin/env bash
# What compiled kernels tell about their speed without a card:
#
#   sass.sh no_local_memory OBJECT...
#   sass.sh registers MOST KERNELS OBJECT
#   sass.sh main_loop PRODUCT PERCENT FEEDS KERNELS OBJECT
#
# registers: each kernel whose name matches KERNELS has at most MOST registers a thread.
# main_loop: in the main loop of each kernel whose name matches KERNELS, at least PERCENT of the
# instructions are PRODUCT (FFMA, HMMA), and all of FEEDS (LDSM: ldmatrix, LDGSTS: cp.async) occur.
# Needs cuobjdump and nvdisasm of the CUDA toolkit; exits 77 without.
set -u
for tool in cuobjdump nvdisasm; do
  command -v $tool >/dev/null && continue
  echo "skipped: no $tool on PATH: it is in the CUDA toolkit, or pip install nvidia-cuda-$tool"
  exit 77
done

if [[ $1 == no_local_memory ]]; then
  shift
  kernels=0 status=0
  for object in "$@"; do
    usage=$(cuobjdump --dump-resource-usage "$object" 2>/dev/null)
    kernels=$((kernels + $(grep -c REG: <<<"$usage")))
    grep -B1 -E 'STACK:[1-9]|LOCAL:[1-9]' <<<"$usage" && status=1
  done
  echo "$kernels kernels"
  ((kernels > 0 && status == 0))
  exit
fi
if [[ $1 == registers ]]; then
  cuobjdump --dump-resource-usage "$4" 2>/dev/null | awk -v most="$2" -v kernels="$3" '
    /Function / { name = $2 }
    match($0, /REG:[0-9]+/) && name ~ kernels {
      ++judged
      registers = substr($0, RSTART + 4, RLENGTH - 4) + 0
      if (registers > most) { ++failed; printf "too many: " }
      print registers, "registers:", name
    }
    END {
      if (!judged) print "no kernel matches " kernels
      exit !judged || failed
    }'
  exit
fi
product=$2 percent=$3 feeds=$4 kernels=$5 object=$6

# Prints a line a kernel; fails if one falls short or if there is none.
#
# The main loop is the shortest one (from where an instruction branches back to, to that
# instruction) with at least half of the kernel's products.
judge='
function finish_kernel(   i, j, in_loop, first, last, products, wanted, missing) {
  if (name !~ kernels || !total) return
  last = 0
  for (i = 1; i <= count; ++i) {
    if (!(target[i] in at) || at[target[i]] > i) continue
    in_loop = 0
    for (j = at[target[i]]; j <= i; ++j) in_loop += op[j] == product
    if (in_loop * 2 < total || (last && i - at[target[i]] >= last - first)) continue
    first = at[target[i]]
    last = i
    products = in_loop
  }
  ++judged
  split("", seen)
  for (j = first; j <= last; ++j) seen[op[j]] = 1
  missing = ""
  split(feeds, wanted, " ")
  for (i in wanted) if (!(wanted[i] in seen)) missing = missing " no " wanted[i]
  if (!last || products * 100 < percent * (last - first + 1) || missing != "") {
    ++failed
    printf "falls short:"
  }
  printf "%s %d %s of %d: %s\n", missing, products, product, last - first + 1, name
}
/Function :/ { finish_kernel(); name = $3; count = total = 0; delete at; delete target }
match($0, /\/\*[0-9a-f]+\*\/ +/) && /;/ {
  line = substr($0, RSTART + RLENGTH)
  where = substr($0, RSTART + 2, RLENGTH - 2)
  sub(/\*.*/, "", where)
  sub(/^@!?U?P[T0-9]+ +/, "", line)
  ++count
  address[count] = sprintf("%8s", where)
  gsub(/ /, "0", address[count])
  at[address[count]] = count
  split(line, words, /[ .;]/)
  op[count] = words[1]
  total += op[count] == product
  target[count] = ""
  if (op[count] == "BRA" && match(line, /0x[0-9a-f]+/)) {
    target[count] = sprintf("%8s", substr(line, RSTART + 2, RLENGTH - 2))
    gsub(/ /, "0", target[count])
  }
}
END {
  finish_kernel()
  if (!judged) { print "no kernel matches " kernels; exit 1 }
  exit failed > 0
}'

cuobjdump --dump-sass "$object" | awk -v product="$product" -v percent="$percent" \
  -v feeds="$feeds" -v kernels="$kernels" "$judge"
