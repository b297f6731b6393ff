#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# scripts/words, on made-up files: the script finds comments that name no actor, and no others.
set -uo pipefail

# shellcheck source=tests/scripts/tap.sh
. "$(dirname "${BASH_SOURCE[0]}")/tap.sh"

tree=$folder/tree
file=$tree/drivers/some.rs
mkdir -p "$tree/drivers"
git -C "$tree" init -q
words() {
	git -C "$tree" add -A
	"$scripts/words" check --root "$tree"
}

printf '/// Waits for room.\nfn wait() {}\n' >"$file"
expect "a comment that names its actor" 0 "" words
printf '\n/// Who waits for room.\n' >"$file"
expect "a comment that does not name its actor" 1 'drivers/some.rs:2: "Who"' words
printf '// The caller looks at\n// What. Then it sleeps.\n' >"$file"
expect "the same word inside a sentence" 0 "" words
printf '// The caller looks.\n// Nobody else does.\n' >"$file"
expect "the word at the begin of a later sentence" 1 'some.rs:2: "Nobody"' words
printf 'let text = "Who";\n' >"$file"
expect "a string" 0 "" words
printf '/* See the head of this file. */\n' >"$tree/drivers/some.h"
expect "a comment in C that sends the reader elsewhere" 1 'some.h:1: "See the head of this file"' words
printf '/* The peer closes when he likes. */\n' >"$tree/drivers/some.h"
expect "a program that is a man" 1 'some.h:1: "he"' words

tap_end
