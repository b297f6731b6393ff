# SPDX-License-Identifier: GPL-2.0
#
# What the scripts ask of a kernel's build tree, or of a folder of kernel headers, and of
# the tools that it was built with. Takes scripts/messages.sh.
# shellcheck shell=bash

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

rustc_of_tree() {
	"${RUSTC:-rustc}" "$@"
}

# The C compiler that built it, such as x86_64-linux-gnu-gcc-14; nothing for plain gcc.
tree_compiler() { # TREE
	local compiler
	compiler=$(tree_text "$1" CONFIG_CC_VERSION_TEXT)
	compiler=${compiler%% *}
	[ "$compiler" = gcc ] || echo "$compiler"
}

# Variables for make that choose its compilers, one a line.
tree_make_variables() { # TREE
	if tree_option "$1" CONFIG_CC_IS_CLANG; then
		echo LLVM=1
	elif [ -n "$(tree_compiler "$1")" ]; then
		echo "CC=$(tree_compiler "$1")"
	fi
	[ -z "${RUSTC:-}" ] || echo "RUSTC=$RUSTC"
	[ -z "${BINDGEN:-}" ] || echo "BINDGEN=$BINDGEN"
}

# One line for what is missing of the tools that built the tree, or is another version.
check_tree_tools() { # TREE [TOOL...]
	local tree=$1 tool wanted found tools
	shift
	tools=(make "${RUSTC:-rustc}" "${BINDGEN:-bindgen}" "$@")
	if tree_option "$tree" CONFIG_CC_IS_CLANG; then
		tools+=(clang ld.lld)
	else
		tools+=("$(tree_compiler "$tree")")
		[ -n "${tools[-1]}" ] || tools[-1]=gcc
	fi
	for tool in "${tools[@]}"; do
		command -v "$tool" >/dev/null ||
			die "$tool is missing, which the kernel in $tree was built with: install it (apt install ${tool#x86_64-linux-gnu-}), or build inside 'scripts/environment run'"
	done
	# A Rust module takes the very compiler that built the kernel's crates.
	wanted=$(tree_text "$tree" CONFIG_RUSTC_VERSION_TEXT)
	found=$(rustc_of_tree --version)
	[ -z "$wanted" ] || [ "$wanted" = "$found" ] ||
		die "the kernel in $tree was built with '$wanted' and this is '$found': use that one (RUSTC=...), or build inside 'scripts/environment run'"
	# A C compiler of another version may lay out the kernel's structures otherwise.
	wanted=$(tree_text "$tree" CONFIG_GCC_VERSION)
	if [ -n "$wanted" ] && [ "$wanted" != 0 ]; then
		found=$("${tools[-1]}" -dumpfullversion | awk -F. '{ print $1 * 10000 + $2 * 100 + $3 }')
		[ "${wanted%??}" = "${found%??}" ] ||
			die "the kernel in $tree was built with '$(tree_text "$tree" CONFIG_CC_VERSION_TEXT)' and ${tools[-1]} is '$("${tools[-1]}" --version | head -n 1)': install that one, or build inside 'scripts/environment run'"
	fi
}

# Whether it is the folder of one of Debian's header packages: the tree's own Makefile is
# elsewhere, and so is its source.
is_header_package() { # TREE
	[ ! -e "$1/rust" ] && [ ! -e "$1/vmlinux.o" ] && grep -qs '^include .*/Makefile$' "$1/Makefile"
}

# Where "make kernel-rust" and "make ntb-modules" put what they make for it: a folder of the
# repository. Takes $here, the folder of the scripts.
made_for() { # TREE
	echo "$(dirname "$here")/build/kernel/$(tree_release "$1")"
}
