# SPDX-License-Identifier: GPL-2.0
#
# Which of two versions is the newer one.
# shellcheck shell=bash

at_least() { # VERSION MINIMUM
	[ "$(printf '%s\n' "$2" "$1" | sort -V | head -n 1)" = "$2" ]
}
