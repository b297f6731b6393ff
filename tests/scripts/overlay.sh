#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# scripts/overlay, on a made-up kernel tree: however often it runs, it adds five lines and the
# project's files, and changes nothing else.
set -uo pipefail

# shellcheck source=tests/scripts/tap.sh
. "$(dirname "${BASH_SOURCE[0]}")/tap.sh"

tree=$folder/linux
mkdir -p "$tree"/{drivers/misc,drivers/net,include/linux,include/uapi/linux}
printf 'VERSION = 7\nPATCHLEVEL = 3\nSUBLEVEL = 4\n' >"$tree/Makefile"
touch "$tree/Kbuild" "$tree/include/uapi/linux/scif_ioctl.h"
printf 'menu "Misc devices"\nsource "drivers/misc/rp1/Kconfig"\nendmenu\n' >"$tree/drivers/misc/Kconfig"
# shellcheck disable=SC2016 # for make
printf 'obj-$(CONFIG_MISC_RP1)\t\t+= rp1/\n' >"$tree/drivers/misc/Makefile"
printf 'if NETDEVICES\nsource "drivers/net/hyperv/Kconfig"\nendif # NETDEVICES\n' >"$tree/drivers/net/Kconfig"
touch "$tree/drivers/Makefile" "$tree/drivers/net/Makefile"
cp -R "$tree" "$folder/before"

overlay() { "$scripts/overlay" "$@"; }
# Prints the differences from the original tree.
changes() { diff -r "$folder/before" "$tree" | grep -v '^[0-9ac,]*$\|^diff '; }

expect "no tree" 1 "is no kernel tree" overlay "$folder"
expect "no argument" 1 "KSRC=" overlay
expect "a tree" 0 "has the driver" overlay "$tree"
expect "a line in Kconfig, before the end of the menu" 0 "" \
	test "$(tail -n 2 "$tree/drivers/misc/Kconfig" | head -n 1)" = 'source "drivers/misc/scif/Kconfig"'
expect "a line in Makefile" 0 "" grep -qF '+= scif/' "$tree/drivers/misc/Makefile"
expect "the same for drivers/net" 0 "" \
	test "$(tail -n 2 "$tree/drivers/net/Kconfig" | head -n 1)" = 'source "drivers/net/scif/Kconfig"'
expect "a line in its Makefile" 0 "" grep -qF '+= scif/' "$tree/drivers/net/Makefile"
expect "nine things in all" 0 "9" bash -c "$(declare -f changes); folder='$folder' tree='$tree'; changes | wc -l"
expect "the driver" 0 "" cmp "$scripts/../drivers/misc/scif/scif_main.rs" "$tree/drivers/misc/scif/scif_main.rs"
expect "the network driver" 0 "" cmp "$scripts/../drivers/net/scif/Kbuild" "$tree/drivers/net/scif/Kbuild"
expect "the header of the services" 0 "" \
	cmp "$scripts/../include/uapi/linux/scif_services.h" "$tree/include/uapi/linux/scif_services.h"
cp -R "$tree" "$folder/once"
touch "$tree/drivers/misc/scif/old.rs"
expect "again" 0 "has the driver" overlay "$tree"
expect "changes nothing, and leaves nothing old" 0 "" diff -r "$folder/once" "$tree"

rm -rf "$tree/drivers/misc/scif"
mkdir "$tree/drivers/misc/scif"
touch "$tree/drivers/misc/scif/somebody.c"
expect "a folder of somebody else" 1 "is not this driver" overlay "$tree"
expect "stays" 0 "" test -e "$tree/drivers/misc/scif/somebody.c"
rm -rf "$tree/drivers/misc/scif" "$tree/drivers/net/scif"
mkdir "$tree/drivers/net/scif"
expect "a folder of somebody else in drivers/net" 1 "is not this driver" overlay "$tree"
printf 'VERSION = 6\nPATCHLEVEL = 18\n' >"$tree/Makefile"
expect "an old tree" 1 "is Linux 6.18" overlay "$tree"

tap_end
