#!/usr/bin/env bash
# The frame of `./dev demo`: runs the commands of chain.sh and demo.sh inside build/demo, prints each before its output,
# and checks that each exit status is the expected one.
#
#   say 'text'              a line of explanation
#   part NAME 'text'        the same, and the seconds from here to the next part are printed by parts_took
#   run 'command'           must exit 0
#   run 1 'command'         must exit 1: refused, different
#
# A command is one string of shell, so that what is printed can be pasted (in build/demo); `ckpt` is the one just built,
# and $data is tests/data. Preparations that no user would type are plain lines of shell.
set -u
root=$(cd "$(dirname "$0")/../.." && pwd)
export PATH=$root/build/bin:$PATH LC_ALL=C.UTF-8
data=../../tests/data
bold='' dim='' plain=''
if [ -t 1 ]; then bold=$'\e[1m' dim=$'\e[2m' plain=$'\e[0m'; fi
n_commands=0 n_expected=0 started=$(date +%s.%N)

say() { printf '\n%s# %s%s\n' "$dim" "$*" "$plain"; }

run() {
  local expected=0 status
  if [[ $1 =~ ^[0-9]+$ ]]; then
    expected=$1
    shift
  fi
  printf '%s$ %s%s\n' "$bold" "$*" "$plain"
  (set -o pipefail; eval "$*") 2>&1 < /dev/null
  status=$?
  n_commands=$((n_commands + 1))
  if [ $status = "$expected" ]; then
    n_expected=$((n_expected + 1))
    [ $status = 0 ] || printf '%s(exit %s, as expected)%s\n' "$dim" $status "$plain"
  else
    printf '%s*** exit %s, expected %s ***%s\n' "$bold" $status "$expected" "$plain"
  fi
}

part_names=() part_began=()

part() {
  part_names+=("$1")
  part_began+=("${EPOCHREALTIME/./}")
  say "$2"
}

parts_took() {
  local i line=''
  part_began+=("${EPOCHREALTIME/./}")
  for i in "${!part_names[@]}"; do
    line+=$(awk "BEGIN { printf \", ${part_names[i]} %.1f s\", (${part_began[i + 1]} - ${part_began[i]}) / 1e6 }")
  done
  say "seconds of each part: ${line#, }"
}

rm -rf "$root/build/demo"
mkdir -p "$root/build/demo"
cd "$root/build/demo" || exit 1
# shellcheck source=demo.sh
source "$root/tests/demo/demo.sh"
# shellcheck source=chain.sh
source "$root/tests/demo/chain.sh"

printf '\nfiles are in build/demo\n'
printf '%d commands, %d as expected, %.1f s\n' $n_commands $n_expected "$(awk "BEGIN { print $(date +%s.%N) - $started }")"
[ $n_commands -gt 0 ] && [ $n_commands = $n_expected ]
