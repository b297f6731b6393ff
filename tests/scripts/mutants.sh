#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# scripts/mutant: each patch in tests/mutants and tests/hostile applies to the module, and one that does
# not is told from one that does. What they do is for tests in tests/src.
set -uo pipefail

# shellcheck source=tests/scripts/tap.sh
. "$(dirname "${BASH_SOURCE[0]}")/tap.sh"

mutant() { "$scripts/mutant" --root "$folder/tree" "$@"; }

# A test has to name it, or another one has it beside.
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
expect "one is made" 0 "" mutant make no-two "$made"
expect "with the change" 0 $'one\nthree' content
before=$(age)
expect "it is made again" 0 "" mutant make no-two "$made"
expect "and nothing is newer" 0 "$before" age
printf 'zero\none\ntwo\nthree\n' >"$source"
expect "the source has changed" 0 "" mutant make no-two "$made"
expect "and so has the mutant" 0 $'zero\none\nthree' content
printf 'one\nthree\n' >"$source"
expect "what it takes out has gone" 1 "no-two.patch does not apply to drivers/ any more" \
	mutant make no-two "$made"
expect "it is said how to mend it" 1 "scripts/mutant refresh no-two" mutant make no-two "$made"
expect "nobody has such a name" 1 "no mutant is called 'other'" mutant make other "$made"
expect "the names" 0 "no-two" mutant list

# What one adds.
added=$folder/tree/tests/hostile
mkdir -p "$added/four/drivers"
printf 'four\n' >"$added/four/drivers/other.rs"
sed 's/Takes out two/Takes out two and adds four/' "$folder/tree/tests/mutants/no-two.patch" >"$added/four.patch"
printf 'one\ntwo\nthree\n' >"$source"
expect "one that adds a file is made" 0 "" mutant make four "$folder/four"
expect "with the change" 0 $'one\nthree' cat "$folder/four/drivers/some.rs"
expect "and with the file" 0 "four" cat "$folder/four/drivers/other.rs"
expect "all names" 0 $'no-two\nfour' mutant list
rm -rf "$added"

committed() { git -C "$folder/tree" -c user.name=n -c user.email=e "$@" >/dev/null 2>&1; }
printf 'one\n2\nthree\n' >"$source"
committed init
committed add -A
committed commit -m first
expect "nothing to refresh it from" 1 "nothing in drivers/ differs" mutant refresh no-two
printf 'one\nthree\n' >"$source"
expect "it is refreshed" 0 "" mutant refresh no-two
committed checkout drivers
expect "and applies again" 0 "" mutant make no-two "$made"
expect "to the same" 0 $'one\nthree' content
expect "with its head" 0 "Takes out two." cat "$folder/tree/tests/mutants/no-two.patch"

tap_end
