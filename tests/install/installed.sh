#!/usr/bin/env bash
# Installs a build into a scratch folder and checks what a packager and a user of the library rely on: the files, the
# exported names (exactly those that ckpt.h declares), the SONAME, pkg-config, C and C++; examples.sh has the CMake package.
#
#   installed.sh BUILD SOURCE CMAKE CC CXX
set -euo pipefail
build=$1 source=$2 cmake=$3 cc=$4 cxx=$5
here=$source/tests/install
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
fail() { echo "FAILED: $*"; exit 1; }

"$cmake" --install "$build" --prefix "$root/usr" > "$root/install.log" 2>&1 || { cat "$root/install.log"; fail install; }
lib=$(dirname "$(find "$root/usr" -name 'libckpt.so.0')")
for file in include/ckpt.h bin/ckpt; do [ -e "$root/usr/$file" ] || fail "$file is not installed"; done
for file in libckpt.so libckpt.so.0.1.0 libckpt.a pkgconfig/libckpt.pc cmake/ckpt/ckptConfig.cmake; do
  [ -e "$lib/$file" ] || fail "$file is not installed"
done
readelf -d "$lib/libckpt.so" | grep -q 'SONAME.*\[libckpt\.so\.0\]' || fail "SONAME is not libckpt.so.0"

# Declared CKPT_API in the header against exported by the library: the same list.
tr '\n' ' ' < "$root/usr/include/ckpt.h" | grep -oP 'CKPT_API [^;(]*?\K\bckpt_\w+(?=\()' | sort > "$root/declared"
nm -D --defined-only "$lib/libckpt.so" | sed -n 's/.* [A-Z] \([^@]*\).*/\1/p' | grep -v '^LIBCKPT_' | sort > "$root/exported"
[ -s "$root/declared" ] || fail "found no CKPT_API declaration in ckpt.h"
diff "$root/declared" "$root/exported" > "$root/names" || { cat "$root/names"; fail "< declared, > exported"; }

# Nothing of ours but libckpt itself, and no library beyond those that the README names.
others=$(readelf -d "$lib/libckpt.so" | sed -n 's/.*NEEDED.*\[\(.*\)\]/\1/p' |
  grep -vE '^(libc|libm|libjansson|libzstd|libz|libdeflate|libcrypto|libpcre2-8|libprotobuf-c|ld-linux.*)\.so' || true)
[ -z "$others" ] || fail "libckpt.so needs $others"

export PKG_CONFIG_PATH=$lib/pkgconfig LD_LIBRARY_PATH=$lib
[ "$(pkg-config --modversion libckpt)" = 0.1.0 ] || fail "pkg-config knows another version"
# shellcheck disable=SC2046
"$cxx" -std=c++17 -Wall -Wextra -Werror -Wpedantic -x c++ "$here/consumer.c" -o "$root/cxx" \
  $(pkg-config --cflags --libs libckpt)
# shellcheck disable=SC2046
"$cc" -std=c17 -Wall -Wextra -Werror -Wpedantic "$here/consumer.c" -o "$root/c" $(pkg-config --cflags --libs libckpt)
for program in c cxx; do "$root/$program" || fail "$program exits $?"; done
env -u LD_LIBRARY_PATH "$root/usr/bin/ckpt" --version || fail "bin/ckpt --version exits $?"
