# SPDX-License-Identifier: GPL-2.0
#
# What the scripts ask of a kernel's build tree, or of a folder of kernel headers, and of
# the tools that it was built with. Takes scripts/messages.sh and scripts/linux-series.sh.
# shellcheck shell=bash

# shellcheck source=scripts/version-order.sh
. "$(dirname "${BASH_SOURCE[0]}")/version-order.sh"

tree_config() { # TREE
	if [ -e "$1/include/config/auto.conf" ]; then
		echo "$1/include/config/auto.conf"
	else
		echo "$1/.config"
	fi
}

# Whether an option is y or m.
tree_option() { # TREE OPTION
	grep -qE "^$2=[ym]$" "$(tree_config "$1")"
}

# The text of an option.
tree_text() { # TREE OPTION
	sed -n "s/^$2=\"\{0,1\}\([^\"]*\)\"\{0,1\}$/\1/p" "$(tree_config "$1")"
}

# The release, such as 7.3.4+deb13-amd64.
tree_release() { # TREE
	if [ -e "$1/include/config/kernel.release" ]; then
		cat "$1/include/config/kernel.release"
	else
		sed -n 's/^#define UTS_RELEASE "\(.*\)"$/\1/p' "$1/include/generated/utsrelease.h"
	fi
}

# One line if the kernel of KDIR= is older than what the module takes.
check_tree_series() { # TREE RELEASE
	at_least "$2" "$LINUX_SERIES_MINIMUM" ||
		die "KDIR=$1 is Linux $2; scif.ko needs $LINUX_SERIES_MINIMUM or later"
}

rustc_of_tree() {
	"${RUSTC:-rustc}" "$@"
}

# The C compiler that built it, such as x86_64-linux-gnu-gcc-14. Only gcc's version text
# begins with its name; that of clang begins with whose clang it is.
tree_compiler() { # TREE
	local compiler
	if tree_option "$1" CONFIG_CC_IS_CLANG; then
		echo clang
		return
	fi
	compiler=$(tree_text "$1" CONFIG_CC_VERSION_TEXT)
	compiler=${compiler%% *}
	echo "$compiler"
}

# Variables for make that choose its compilers, one a line.
tree_make_variables() { # TREE
	if tree_option "$1" CONFIG_CC_IS_CLANG; then
		echo LLVM=1
	else
		echo "CC=$(tree_compiler "$1")"
	fi
	[ -z "${RUSTC:-}" ] || echo "RUSTC=$RUSTC"
	[ -z "${BINDGEN:-}" ] || echo "BINDGEN=$BINDGEN"
}

# The package of Debian's that has a tool.
package_of() { # TOOL
	case $1 in
	*-gcc-*) echo "${1#*-linux-gnu-}" ;;
	ld.lld) echo lld ;;
	xz) echo xz-utils ;;
	libelf.h) echo libelf-dev ;;
	openssl/opensslv.h) echo libssl-dev ;;
	*) echo "${1##*/}" ;;
	esac
}

# One line for all that is missing of the tools that built the tree, and one for what is
# there in another version.
check_tree_tools() { # TREE [TOOL...]
	local tree=$1 compiler tool wanted found missing=() packages=()
	shift
	compiler=$(tree_compiler "$tree")
	for tool in make "${RUSTC:-rustc}" "${BINDGEN:-bindgen}" "$compiler" \
		$(! tree_option "$tree" CONFIG_CC_IS_CLANG || echo ld.lld) "$@"; do
		case $tool in
		*.h) [ -n "$(find /usr/include -path "*/$tool" -print -quit 2>/dev/null)" ] ;;
		rust-src) [ -e "$(rustc_of_tree --print sysroot 2>/dev/null)/lib/rustlib/src/rust/library/core/src/lib.rs" ] ;;
		*) command -v "$tool" >/dev/null ;;
		esac || {
			missing+=("$tool")
			packages+=("$(package_of "$tool")")
		}
	done
	[ "${#missing[@]}" = 0 ] ||
		die "missing of what the kernel in $tree was built with: ${missing[*]}; install it (apt install ${packages[*]}), or build inside 'scripts/environment run'"
	# A Rust module takes the very compiler that built the kernel's crates.
	wanted=$(tree_text "$tree" CONFIG_RUSTC_VERSION_TEXT)
	found=$(rustc_of_tree --version)
	[ -z "$wanted" ] || [ "$wanted" = "$found" ] ||
		die "the kernel in $tree was built with '$wanted' and this is '$found': use that one (RUSTC=...; Debian builds with the rustc of the release, not of backports), or build inside 'scripts/environment run'"
	# A C compiler of another version may lay out the kernel's structures otherwise.
	wanted=$(tree_text "$tree" CONFIG_GCC_VERSION)
	if [ -n "$wanted" ] && [ "$wanted" != 0 ]; then
		found=$("$compiler" -dumpfullversion | awk -F. '{ print $1 * 10000 + $2 * 100 + $3 }')
		[ "${wanted%??}" = "${found%??}" ] ||
			die "the kernel in $tree was built with '$(tree_text "$tree" CONFIG_CC_VERSION_TEXT)' and $compiler is '$("$compiler" --version | head -n 1)': install that one, or build inside 'scripts/environment run'"
	fi
}

# The same, with what the kernel's own source takes in addition.
check_source_tools() { # TREE
	check_tree_tools "$1" rust-src flex bison bc pahole xz perl libelf.h openssl/opensslv.h
}

# Whether it is the folder of one of Debian's header packages: the tree's own Makefile is
# elsewhere, and so is its source.
is_header_package() { # TREE
	[ ! -e "$1/rust" ] && [ ! -e "$1/vmlinux.o" ] && grep -qs '^include .*/Makefile$' "$1/Makefile"
}

# Runs Kbuild for an external module: "build_external TREE TARGET [ARGUMENT...]". What is
# installed for a header package is not signed, as nobody has the key, and modprobe is told
# of it here, which Kbuild leaves out for a tree without System.map.
build_external() {
	local tree=$1 target=$2
	shift 2
	# Kbuild is run in another folder.
	[ -z "${INSTALL_MOD_PATH:-}" ] || INSTALL_MOD_PATH=$(realpath -m "$INSTALL_MOD_PATH") || return
	export INSTALL_MOD_PATH=${INSTALL_MOD_PATH:-}
	if [ "$target" = modules_install ] && [ ! -e "$tree/System.map" ]; then
		make --no-print-directory -C "$tree" "$@" INSTALL_MOD_PATH="$INSTALL_MOD_PATH" \
			CONFIG_MODULE_SIG_ALL= modules_install 2>&1 |
			{ grep -v "missing 'System.map' file" || true; } || return
		PATH=$PATH:/usr/sbin:/sbin depmod ${INSTALL_MOD_PATH:+-b "$INSTALL_MOD_PATH"} \
			"$(tree_release "$tree")"
		return
	fi
	make --no-print-directory -C "$tree" "$@" "$target"
}

# Where "make kernel-rust" and "make ntb-modules" put what they make for it: a folder of the
# repository. Takes $here, the folder of the scripts.
made_for() { # TREE
	echo "$(dirname "$here")/build/kernel/$(tree_release "$1")"
}
