# SPDX-License-Identifier: GPL-2.0
#
# How the scripts of this project speak: one line a step, one clear line when
# something is wrong. Colours on a terminal only.
# shellcheck shell=bash

if [ -t 2 ] && [ -z "${NO_COLOR:-}" ]; then
	message_bold=$'\033[1m' message_red=$'\033[31m' message_off=$'\033[0m'
else
	message_bold='' message_red='' message_off=''
fi

step() {
	printf '%s==>%s %s\n' "$message_bold" "$message_off" "$*" >&2
}

die() {
	printf '%serror:%s %s\n' "$message_red" "$message_off" "$*" >&2
	exit 1
}
