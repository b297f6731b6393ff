#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# dkms with packaging/debian/scif-dkms.dkms for a header package of Debian's. Without the kernel's
# source it leaves the module out (77) and prints so, which fails no kernel's installation.
set -uo pipefail

# shellcheck source=tests/scripts/tap.sh
. "$(dirname "${BASH_SOURCE[0]}")/tap.sh"

release=7.3.99+deb13-amd64
source=$folder/src/scif-1
headers=$folder/headers
repository=$(dirname "$scripts")
mkdir -p "$source/scripts" "$headers/include/config" "$folder/tree" "$folder/modules"
sed 's/#MODULE_VERSION#/1/' "$repository/packaging/debian/scif-dkms.dkms" >"$source/dkms.conf"
cp "$scripts"/{kernel-for-modules,messages.sh,linux-series.sh,kernel-tree.sh,version-order.sh} "$source/scripts/"
printf 'include /usr/src/linux-headers/Makefile\n' >"$headers/Makefile"
echo "$release" >"$headers/include/config/kernel.release"
for option in 64BIT MMU PCI NET RUST DMA_ENGINE MMU_NOTIFIER MODULES; do
	echo "CONFIG_$option=y"
done | tee "$headers/.config" >"$headers/include/config/auto.conf"
# Replaces the build: the test only checks that it begins.
printf '#!/bin/sh\necho "the build has begun"\nexit 3\n' >"$source/dkms-build"
chmod +x "$source/dkms-build"

run_dkms() {
	PATH=$PATH:/usr/sbin:/sbin dkms "$@" --dkmstree "$folder/tree" --sourcetree "$folder/src" \
		--installtree "$folder/modules"
}
build() { run_dkms build scif/1 -k "$release" -a x86_64 --kernelsourcedir "$headers"; }

expect "the source of the module is added" 0 "" run_dkms add scif/1
expect "without the kernel's source it is left out" 77 "linux-source-7.3" build
expect "with the command that comes after" 77 "dkms autoinstall -k $release" build
# With a source the module is built. The checks are the same as for a kernel with all options.
mkdir "$headers/rust"
expect "a tree with all of it is built" 10 "" build
expect "by the package's command" 0 "the build has begun" \
	cat "$folder/tree/scif/1/build/make.log"
tap_end
