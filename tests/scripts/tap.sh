# SPDX-License-Identifier: GPL-2.0
#
# Functions that the tests of the scripts share: a temporary folder, and lines of TAP.
# shellcheck shell=bash

tap_number=0
tap_failed=0
scripts=$(cd "$(dirname "${BASH_SOURCE[0]}")/../../scripts" && pwd)
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

tap_line() { # RESULT NAME
	tap_number=$((tap_number + 1))
	echo "$1 $tap_number - $2"
	[ "$1" = ok ] || tap_failed=$((tap_failed + 1))
}

# Runs a command, and checks its exit status and a text in its output.
expect() { # NAME STATUS TEXT COMMAND...
	local name=$1 status=$2 text=$3 output result=0
	shift 3
	output=$("$@" 2>&1) || result=$?
	if [ "$result" = "$status" ] && [[ $output == *"$text"* ]]; then
		tap_line ok "$name"
	else
		tap_line "not ok" "$name"
		printf '# exit status %s instead of %s, "%s" in:\n' "$result" "$status" "$text"
		while read -r line; do echo "#   $line"; done <<<"$output"
	fi
}

tap_end() {
	echo "1..$tap_number"
	[ "$tap_failed" = 0 ]
}
