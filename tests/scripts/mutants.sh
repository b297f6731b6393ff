#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# scripts/mutant: each patch in tests/mutants and tests/hostile applies to the module, and the script
# reports a patch that does not. The tests in tests/src check the effects of the patches.
set -uo pipefail

# shellcheck source=tests/scripts/tap.sh
. "$(dirname "${BASH_SOURCE[0]}")/tap.sh"

mutant() { "$scripts/mutant" --root "$folder/tree" "$@"; }

# Checks that a test names the mutant, or another mutant is compared with it.
is_used() { # NAME
	grep -q "\"$1\"" "$scripts"/../tests/src/*.rs ||
		grep -q "^Beside: $1\$" "$scripts"/../tests/mutants/*.patch
}

for name in $("$scripts/mutant" list); do
	expect "$name applies" 0 "" "$scripts/mutant" make "$name" "$folder/$name"
	expect "$name is used" 0 "" is_used "$name"
	rm -rf "${folder:?}/$name"
done

source=$folder/tree/drivers/some.rs
mkdir -p "$folder/tree/drivers" "$folder/tree/include" "$folder/tree/tests/mutants"
printf 'one\ntwo\nthree\n' >"$source"
cat >"$folder/tree/tests/mutants/no-two.patch" <<-'END'
	Takes out two.

	diff --git a/drivers/some.rs b/drivers/some.rs
	--- a/drivers/some.rs
	+++ b/drivers/some.rs
	@@ -1,3 +1,2 @@
	 one
	-two
	 three
END

made=$folder/made
content() { cat "$made/drivers/some.rs"; }
age() { stat -c %y "$made/drivers/some.rs"; }
expect "a mutant is made" 0 "" mutant make no-two "$made"
expect "the mutant has the change" 0 $'one\nthree' content
before=$(age)
expect "the same mutant is made again" 0 "" mutant make no-two "$made"
expect "no file of the same mutant is newer" 0 "$before" age
printf 'zero\none\ntwo\nthree\n' >"$source"
expect "the mutant of a changed source is made" 0 "" mutant make no-two "$made"
expect "the mutant has the change of the source" 0 $'zero\none\nthree' content
printf 'one\nthree\n' >"$source"
expect "the removed line has gone" 1 "no-two.patch does not apply to drivers/ any more" \
	mutant make no-two "$made"
expect "the error names the command to refresh" 1 "scripts/mutant refresh no-two" mutant make no-two "$made"
expect "an unknown name" 1 "no mutant is called 'other'" mutant make other "$made"
expect "the names" 0 "no-two" mutant list

# A mutant that adds a file.
added=$folder/tree/tests/hostile
mkdir -p "$added/four/drivers"
printf 'four\n' >"$added/four/drivers/other.rs"
sed 's/Takes out two/Takes out two and adds four/' "$folder/tree/tests/mutants/no-two.patch" >"$added/four.patch"
printf 'one\ntwo\nthree\n' >"$source"
expect "a mutant that adds a file is made" 0 "" mutant make four "$folder/four"
expect "a mutant with a file has the change" 0 $'one\nthree' cat "$folder/four/drivers/some.rs"
expect "a mutant with a file has the file" 0 "four" cat "$folder/four/drivers/other.rs"
expect "all names" 0 $'no-two\nfour' mutant list
rm -rf "$added"

committed() { git -C "$folder/tree" -c user.name=n -c user.email=e "$@" >/dev/null 2>&1; }
printf 'one\n2\nthree\n' >"$source"
committed init
committed add -A
committed commit -m first
expect "no change to refresh a mutant from" 1 "drivers/ has no changes" mutant refresh no-two
printf 'one\nthree\n' >"$source"
expect "a mutant is refreshed" 0 "" mutant refresh no-two
committed checkout drivers
expect "a refreshed mutant applies" 0 "" mutant make no-two "$made"
expect "a refreshed mutant has the change" 0 $'one\nthree' content
expect "a refreshed mutant keeps its head" 0 "Takes out two." cat "$folder/tree/tests/mutants/no-two.patch"

tap_end
