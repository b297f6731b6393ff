#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# scripts/sizes, on made-up files: the script finds files and functions that are one line or
# parameter too large, unless the head of the file gives a reason.
set -uo pipefail

# shellcheck source=tests/scripts/tap.sh
. "$(dirname "${BASH_SOURCE[0]}")/tap.sh"

module=$folder/tree/drivers/misc/scif
file=$module/inner/some.rs
mkdir -p "$module/inner"

lines() { # COUNT
	yes '    // }' | head -n "$1"
}
# Prints a function of COUNT lines.
function_of() { # COUNT
	echo 'fn some<T: Fn(u8, u8) -> u8>(given: [u8; 4]) -> [u8; 4] {'
	lines $(($1 - 2))
	echo '}'
}
sizes() { "$scripts/sizes" check --root "$folder/tree"; }

lines 500 >"$file"
expect "a file of 500 lines" 0 "" sizes
lines 501 >"$file"
expect "a file of 501 lines" 1 "drivers/misc/scif/inner/some.rs:1: 501 lines" sizes
other=$folder/tree/drivers/net/scif
mkdir -p "$other" && mv "$file" "$other"
expect "a file of 501 lines in scif_net" 1 "drivers/net/scif/some.rs:1: 501 lines" sizes
rm -r "$other"
{ printf '// SPDX\n\n//! Many things. It has more than 500\n//! lines because they are alike.\n'; lines 500; } >"$file"
expect "a long file that its head explains" 0 "" sizes
{ echo 'fn f() {}'; echo '//! more than 500 lines because'; lines 500; } >"$file"
expect "a long file with an explanation outside of its head" 1 "some.rs:1: 502 lines" sizes

function_of 60 >"$file"
expect "a function of 60 lines" 0 "" sizes
{ echo; function_of 61; } >"$file"
expect "a function of 61 lines" 1 "some.rs:2: some has 61 lines" sizes
{ echo 'impl A {'; echo 'pub(crate) const unsafe extern "C"'; function_of 61; echo '}'; } >"$file"
expect "a method of 61 lines" 1 "some.rs:3: some has 61 lines" sizes
{ echo '//! Here `some` has more than 60 lines because it is a table.'; function_of 61; } >"$file"
expect "a long function that the head explains" 0 "" sizes
{ echo '//! Here `other` has more than 60 lines because it is a table.'; function_of 61; } >"$file"
expect "a long function that the head does not name" 1 "some has 61 lines" sizes
{ function_of 60; function_of 60; } >"$file"
expect "two functions of 60 lines" 0 "" sizes

echo 'fn some(&self, a: A<u8, u8>, b: (u8, u8), c: fn(u8, u8) -> u8, d: [u8; 2], f: u8,) {}' >"$file"
expect "six parameters" 0 "" sizes
echo 'fn some<A, B: Fn(u8, u8) -> u8>(&mut self, a: A<u8, u8>, b: B, c: D, d: D, e: D, f: D) -> u8;' >"$file"
expect "seven parameters" 1 "some.rs:1: some takes 7 parameters" sizes
sed -i '1i //! `some` takes more than 6 parameters because the kernel says so.' "$file"
expect "seven parameters that the head explains" 0 "" sizes
echo 'fn some(a: A, /* b, c, d: */ e: E, // f, g' >"$file"
echo 'h: H) { g("a, b", '"','"', 1, 2, 3, 4, 5, 6, 7, 8) }' >>"$file"
expect "text that only looks like parameters" 0 "" sizes
expect "the list" 0 "3 parameters  drivers/misc/scif/inner/some.rs:1 some" \
	"$scripts/sizes" list --root "$folder/tree"
tap_end
