# SPDX-License-Identifier: GPL-2.0
#
# Functions that query a kernel's build tree, or a folder of kernel headers, and the tools that it
# was built with. They need scripts/messages.sh and scripts/linux-series.sh.
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

# Returns whether an option is y or m.
tree_option() { # TREE OPTION
	grep -qE "^$2=[ym]$" "$(tree_config "$1")"
}

# Prints the text of an option.
tree_text() { # TREE OPTION
	sed -n "s/^$2=\"\{0,1\}\([^\"]*\)\"\{0,1\}$/\1/p" "$(tree_config "$1")"
}

# Prints the release, such as 7.3.4+deb13-amd64.
tree_release() { # TREE
	if [ -e "$1/include/config/kernel.release" ]; then
		cat "$1/include/config/kernel.release"
	else
		sed -n 's/^#define UTS_RELEASE "\(.*\)"$/\1/p' "$1/include/generated/utsrelease.h"
	fi
}

# Prints one line if the kernel of KDIR= is older than the module needs.
check_tree_series() { # TREE RELEASE
	at_least "$2" "$LINUX_SERIES_MINIMUM" ||
		die "KDIR=$1 is Linux $2; scif.ko needs $LINUX_SERIES_MINIMUM or later"
}

rustc_of_tree() {
	"${RUSTC:-rustc}" "$@"
}

# Prints the C compiler that built it, such as x86_64-linux-gnu-gcc-14. Only gcc's version text
# begins with its name; the text of clang begins with its vendor.
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

# Prints the variables for make that choose its compilers, one a line.
tree_make_variables() { # TREE
	if tree_option "$1" CONFIG_CC_IS_CLANG; then
		echo LLVM=1
	else
		echo "CC=$(tree_compiler "$1")"
	fi
	[ -z "${RUSTC:-}" ] || echo "RUSTC=$RUSTC"
	[ -z "${BINDGEN:-}" ] || echo "BINDGEN=$BINDGEN"
}

# Prints the Debian package that has a tool.
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

# Prints one line for all missing tools among those that built the tree, and one line for all tools
# that have another version.
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
	# A Rust module needs the very compiler that built the kernel's crates.
	wanted=$(tree_text "$tree" CONFIG_RUSTC_VERSION_TEXT)
	found=$(rustc_of_tree --version)
	[ -z "$wanted" ] || [ "$wanted" = "$found" ] ||
		die "the kernel in $tree was built with '$wanted' and this is '$found': use that one (RUSTC=...; Debian builds with the rustc of the release, not of backports), or build inside 'scripts/environment run'"
	# A C compiler of another version may lay out the kernel's structures in another way.
	wanted=$(tree_text "$tree" CONFIG_GCC_VERSION)
	if [ -n "$wanted" ] && [ "$wanted" != 0 ]; then
		found=$("$compiler" -dumpfullversion | awk -F. '{ print $1 * 10000 + $2 * 100 + $3 }')
		[ "${wanted%??}" = "${found%??}" ] ||
			die "the kernel in $tree was built with '$(tree_text "$tree" CONFIG_CC_VERSION_TEXT)' and $compiler is '$("$compiler" --version | head -n 1)': install that one, or build inside 'scripts/environment run'"
	fi
}

# Checks the tools, with those that the kernel's own source needs in addition.
check_source_tools() { # TREE
	check_tree_tools "$1" rust-src flex bison bc pahole xz perl libelf.h openssl/opensslv.h
}

# Returns whether the tree is the folder of one of Debian's header packages: then the tree's own
# Makefile is elsewhere, and so is its source.
is_header_package() { # TREE
	[ ! -e "$1/rust" ] && [ ! -e "$1/vmlinux.o" ] && grep -qs '^include .*/Makefile$' "$1/Makefile"
}

# Runs Kbuild for an external module: "build_external TREE TARGET [ARGUMENT...]". Modules that are
# installed for a header package are not signed, as the key is not public. This also runs depmod,
# which Kbuild leaves out for a tree without System.map.
build_external() {
	local tree=$1 target=$2
	shift 2
	# Kbuild runs in another folder.
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

# Prints the folder of the repository in which "make kernel-rust" and "make ntb-modules" put their
# results for the tree. Needs $here, the folder of the scripts.
made_for() { # TREE
	echo "$(dirname "$here")/build/kernel/$(tree_release "$1")"
}
