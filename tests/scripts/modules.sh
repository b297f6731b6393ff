#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# "make modules", "kernel-rust" and "ntb-modules" with an unsuitable KDIR=: each prints one clear
# line. The trees are a few files, and nothing is compiled.
set -uo pipefail

# shellcheck source=tests/scripts/tap.sh
. "$(dirname "${BASH_SOURCE[0]}")/tap.sh"

rustc=$(rustc --version)
gcc_text=$(gcc --version | head -n 1)
gcc_number=$(gcc -dumpfullversion | awk -F. '{ print $1 * 10000 + $2 * 100 + $3 }')

# Makes the files of a Debian header package that the scripts read.
headers() { # NAME RELEASE [LINE...]
	local tree=$folder/$1
	mkdir -p "$tree/include/config"
	echo 'include /usr/src/linux-headers-common/Makefile' >"$tree/Makefile"
	echo "$2" >"$tree/include/config/kernel.release"
	: >"$tree/Module.symvers"
	shift 2
	printf '%s\n' CONFIG_MODULES=y CONFIG_DMA_ENGINE=y CONFIG_MMU_NOTIFIER=y CONFIG_CC_IS_GCC=y \
		"CONFIG_CC_VERSION_TEXT=\"gcc ${gcc_text#* }\"" "$@" >"$tree/.config"
	cp "$tree/.config" "$tree/include/config/auto.conf"
}
good=(CONFIG_RUST=y "CONFIG_RUSTC_VERSION_TEXT=\"$rustc\"" "CONFIG_GCC_VERSION=$gcc_number")
build() { "$scripts/build-module" "$folder/$1" "$folder/out"; }
for_modules() { "$scripts/kernel-for-modules" "$1" "$folder/$2" "${3:-}"; }

expect "no folder" 1 "there is no such folder" build nothing
mkdir "$folder/empty"
expect "no kernel tree" 1 "it has no Makefile" build empty
mkdir "$folder/bare" && : >"$folder/bare/Makefile"
expect "not configured" 1 "it has no .config" build bare
: >"$folder/bare/.config"
expect "not prepared" 1 "modules_prepare" build bare
headers old 7.2.1-amd64 "${good[@]}"
expect "too old" 1 "is Linux 7.2.1-amd64; scif.ko needs 7.3" build old
expect "too old for kernel-rust" 1 "is Linux 7.2.1-amd64; scif.ko needs 7.3" for_modules kernel-rust old
headers rustless 7.3.99-amd64
expect "without Rust" 1 "lacks CONFIG_RUST" build rustless
headers notifierless 7.3.99-amd64 "${good[@]}"
sed -i /MMU_NOTIFIER/d "$folder"/notifierless/{.config,include/config/auto.conf}
expect "without MMU notifiers" 1 "lacks CONFIG_MMU_NOTIFIER" build notifierless
headers debian 7.3.99-test-amd64 "${good[@]}"
expect "a header package has no rust/" 1 "make kernel-rust KDIR=$folder/debian" build debian
expect "no source package" 1 "kernel's source is not there" for_modules kernel-rust debian "$folder/no.tar.xz"
expect "ntb-modules before kernel-rust" 1 "run 'make kernel-rust" for_modules ntb-modules debian
expect "not a header package" 1 "is no folder of a header package" for_modules kernel-rust bare

headers clang 7.3.99-amd64 "${good[@]:0:2}" CONFIG_NTB=y CONFIG_CC_IS_CLANG=y \
	'CONFIG_CC_VERSION_TEXT="Nobody clang version 19.1.7"' CONFIG_GCC_VERSION=0
mkdir -p "$folder/clang/rust"
: >"$folder/clang/rust/libkernel.rmeta"
# The command runs make in that folder, which has no tree.
expect "a kernel that clang has built" 2 "No rule to make target" build clang
headers good-gcc 7.3.99-amd64 "${good[@]}" CONFIG_NTB=y
mkdir -p "$folder/good-gcc/rust"
: >"$folder/good-gcc/rust/libkernel.rmeta"
expect "a kernel that gcc has built" 2 "No rule to make target" build good-gcc

mkdir "$folder/source"
printf 'kernelversion:\n\t@echo 7.3.98\n' >"$folder/source/Makefile"
expect "a source of another version" 1 "is Linux 7.3.98 and the headers in $folder/debian are of 7.3.99" \
	for_modules kernel-rust debian "$folder/source"
printf 'kernelversion:\n\t@echo 7.3.9\n' >"$folder/source/Makefile"
expect "a source whose version begins like the right one" 1 "is Linux 7.3.9 and the headers in" \
	for_modules kernel-rust debian "$folder/source"
printf 'kernelversion:\n\t@echo 7.3.99\n' >"$folder/source/Makefile"
headers other-rustc 7.3.99-amd64 CONFIG_RUST=y 'CONFIG_RUSTC_VERSION_TEXT="rustc 1.99.0 (none)"'
expect "another rustc" 1 "was built with 'rustc 1.99.0 (none)' and this is '$rustc'" \
	for_modules kernel-rust other-rustc "$folder/source"
headers other-gcc 7.3.99-amd64 CONFIG_RUST=y "CONFIG_RUSTC_VERSION_TEXT=\"$rustc\"" CONFIG_GCC_VERSION=90100
expect "another gcc" 1 "install that one, or build inside" for_modules kernel-rust other-gcc "$folder/source"
made=$(dirname "$scripts")/build/kernel/7.3.99-own-amd64
headers own 7.3.99-own-amd64 "${good[@]}"
mkdir -p "$made/tree" "$made/ntb-modules" && cp -r "$folder/own/." "$made/tree" && : >"$made/tree/ready"
expect "no NTB modules yet" 1 "'make ntb-modules KDIR=$folder/own' builds" build own
expect "none to install" 1 "are not built: run 'make ntb-modules'" for_modules ntb-modules_install own
echo old >"$made/ntb-modules/ready"
expect "NTB modules of an older kernel" 1 "run 'make ntb-modules KDIR=$folder/own' again" build own
rm -rf "$(dirname "$scripts")"/build/kernel/7.3.99*
tap_end
