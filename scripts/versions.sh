# SPDX-License-Identifier: GPL-2.0
#
# The versions of the pinned root: a Debian release, and what has to be in it. The
# hash of this file and of scripts/make-root is the key under which the root is
# cached. The kernel has a file of its own: scripts/linux-series.sh.
# shellcheck shell=bash disable=SC2034

# The pinned root: a Debian release and its backports.
DEBIAN_SUITE=trixie

# What the root must hold in the end. "environment ensure" checks each of these.
RUSTC_VERSION=1.85.1
BINDGEN_VERSION=0.71.1
LLVM_MAJOR=19
QEMU_MINIMUM=11.1

# What is compiled for beside this machine's own: the archive's packages for it are
# listed, too. Nothing of it is installed in the root.
DEBIAN_FOREIGN_ARCHITECTURE=arm64

# Packages of the release itself. gcc-14-multilib and not gcc-multilib, which excludes
# compilers for other machines; make-root makes the one link that it has.
PACKAGES_RELEASE="
	build-essential make gcc gcc-14 bc bison flex libelf-dev libssl-dev
	clang lld llvm clang-tools
	rustc rust-src rustfmt rust-clippy bindgen cargo
	xz-utils zstd cpio kmod python3 perl busybox-static git ca-certificates pahole
	rsync pkg-config iproute2 pciutils procps iperf3
	gcc-14-multilib python3-sphinx mandoc udev systemd-standalone-sysusers
	debhelper dkms dh-dkms lintian
	e2fsprogs fio nbd-client nbd-server
	gcc-aarch64-linux-gnu libc6-dev-arm64-cross
	gcc-arm-linux-gnueabihf libc6-dev-armhf-cross
"

# Packages that are recent enough only in backports.
PACKAGES_BACKPORTS="
	qemu-system-x86 qemu-system-arm
"
