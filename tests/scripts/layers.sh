#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# scripts/layers, on a small made-up tree: the script finds exactly the faults, and prints their
# lines.
set -uo pipefail

# shellcheck source=tests/scripts/tap.sh
. "$(dirname "${BASH_SOURCE[0]}")/tap.sh"

module=$folder/tree/drivers/misc/scif
program=$folder/tree/tools/program/src

write() { # FILE: its text is the input
	mkdir -p "$(dirname "$1")"
	cat >"$1"
}

# Makes a tree of four layers without faults. Each case begins with this tree, and adds to it.
fresh() {
	rm -rf "$folder/tree"
	write "$module/LAYERS" <<-'END'
		# A comment.

		main | scif_main.rs | Begins
		door | door.rs | Asks
		store | store.rs store/ | Keeps
		base | base.rs | Adds
	END
	write "$module/scif_main.rs" <<-'END'
		mod base;
		mod door;
		mod store;
		use door::Door;
		module! { type: Scif }
	END
	write "$module/door.rs" <<-'END'
		//! Not `crate::Scif`, which use crate::Scif; would be.
		use crate::{
		    base,
		    store::Shelf, //
		};
		use kernel::prelude::*;
		pub(crate) struct Door<'a>(&'a str, Shelf);
		fn open() -> u8 { /* crate::x /* nested */ */ base::add("crate::Scif", '"', b'\'', r#"" crate::Scif "#) }
	END
	write "$module/store.rs" <<-'END'
		mod cellar;
		mod shelf;
		pub(crate) use shelf::Shelf;
	END
	write "$module/store/shelf.rs" <<-'END'
		use super::cellar::Cellar;
		use crate::LocalModule;
		pub(in crate::store) struct Shelf(*const Cellar);
	END
	write "$module/store/cellar.rs" <<-'END'
		use crate::base;
		pub(super) struct Cellar;
		fn add() { base::add() }
	END
	write "$module/base.rs" <<-'END'
		pub(crate) fn add() {}
	END
}

layers() { "$scripts/layers" "$@" --root "$folder/tree"; }
finds() { # NAME TEXT
	expect "$1" 1 "$2" layers check
}
# Checks that the script finds one fault, and prints it once.
finds_only() { # NAME TEXT
	local lines
	finds "$1" "$2"
	lines=$(layers check | grep -vc '^    ')
	expect "$1: and no more" 0 "" test "$lines" = 1
}

fresh
expect "a tree without a fault" 0 "" layers check
expect "has nothing to be said of it" 0 "" test -z "$(layers check)"
expect "how often which layer imports from which" 0 "   1  door -> base" layers list

fresh
echo 'use crate::door::Door;' >>"$module/base.rs"
finds_only "an arrow up" \
	"drivers/misc/scif/base.rs:2: imports crate::door::Door from drivers/misc/scif/door.rs: up, from base to door"
expect "is marked in the list" 0 "base -> door  up" layers list

fresh
write "$module/base.rs" <<-'END'
	use crate::{
	    store::{
	        self,
	        Shelf as Board, //
	    },
	};
	use kernel::{
	    prelude::*, //
	};
END
finds "an arrow up of a nested use: the module" "base.rs:3: imports crate::store from drivers/misc/scif/store.rs: up"
finds "and what it re-exports" "base.rs:4: imports crate::store::Shelf from drivers/misc/scif/store/shelf.rs: up"

fresh
printf 'fn f() {\n\tlet door = crate::door::Door;\n}\n' >>"$module/base.rs"
finds_only "a path in code" "base.rs:3: imports crate::door::Door"

fresh
printf 'use crate::door as entry;\nfn f() { entry::open() }\n' >>"$module/base.rs"
finds_only "another name for a module" "base.rs:2: imports crate::door from drivers/misc/scif/door.rs"

fresh
sed -i 's/use shelf::Shelf/use shelf::*/' "$module/store.rs"
echo 'use crate::store::*;' >>"$module/base.rs"
echo 'fn f(shelf: Shelf) { crate::store::Shelf::g() }' >>"$module/base.rs"
finds "a glob" "base.rs:2: imports crate::store from drivers/misc/scif/store.rs: up"
finds "and a name that one re-exports" "base.rs:3: imports crate::store::Shelf::g from drivers/misc/scif/store/shelf.rs"

fresh
printf '#[path = "store/attic.rs"]\npub(crate) mod roof;\n' >>"$module/scif_main.rs"
echo 'use crate::door::Door;' >"$module/store/attic.rs"
finds_only "a module whose file has another name" "store/attic.rs:1: imports crate::door::Door"

fresh
printf 'macro_rules! m {\n() => { $crate::door::Door };\n}\n' >>"$module/base.rs"
finds_only "a path in a macro" "base.rs:3: imports crate::door::Door"

fresh
printf 'fn f(door: *const crate::door::Door) {}\n' >>"$module/base.rs"
finds_only "a path behind *const" "base.rs:2: imports crate::door::Door"

fresh
printf 'mod inner {\n\tuse super::super::super::door::Door;\n}\n' >>"$module/store/cellar.rs"
finds_only "super of an inline module is of the same file" "cellar.rs:5: imports super::super::super::door::Door"

fresh
echo 'fn f() { super::super::door::open() }' >>"$module/store/cellar.rs"
finds_only "super::super" "cellar.rs:4: imports super::super::door::open"

fresh
echo 'use crate::Scif;' >>"$module/store/cellar.rs"
finds_only "what the root of the crate has" "cellar.rs:4: imports crate::Scif from drivers/misc/scif/scif_main.rs: up"

fresh
cat >>"$module/base.rs" <<-'END'
	#[cfg(test)]
	use crate::store::{Shelf, self};
	#[kunit_tests(scif_base)]
	pub(crate) mod tests {
	    use super::*;
	    use crate::door::Door;
	    fn f() { crate::door::open() }
	}
	#[cfg(test)]
	mod more_tests;
END
write "$module/base/more_tests.rs" <<<'use crate::door::Door;'
sed -i 's/base.rs/& base\//' "$module/LAYERS"
expect "tests may import what they like" 0 "" layers check
echo '#[cfg(not(test))] use crate::door::Door;' >>"$module/base.rs"
finds_only "what is not for tests may not" "base.rs:12: imports crate::door::Door"

fresh
echo 'use super::shelf;' >>"$module/store/cellar.rs"
echo 'fn f() { cellar::add() }' >>"$module/store.rs"
expect "the files of a folder may use each other" 0 "" layers check

fresh
sed -i 's,store/ ,store/ yard.rs ,' "$module/LAYERS"
echo 'mod yard;' >>"$module/scif_main.rs"
echo 'use crate::store::Shelf;' >"$module/yard.rs"
expect "as may a file and a folder of a layer, one way" 0 "" layers check
echo 'use crate::yard;' >>"$module/store/cellar.rs"
finds_only "but not in a circle" "drivers/misc/scif/store/cellar.rs:4: circle of 2:
    drivers/misc/scif/store/cellar.rs:4 imports crate::yard from drivers/misc/scif/yard.rs
    drivers/misc/scif/yard.rs:1 imports crate::store::Shelf from drivers/misc/scif/store/shelf.rs"

fresh
echo 'mod stray;' >>"$module/scif_main.rs"
: >"$module/stray.rs"
finds_only "a file in no layer" "drivers/misc/scif/stray.rs: in no layer of"

fresh
write "$module/store/knob.rs" </dev/null
finds_only "a file that no mod line names" "drivers/misc/scif/store/knob.rs: no mod line leads to it"

fresh
echo 'mod knob;' >>"$module/door.rs"
finds_only "a mod line without a file" "drivers/misc/scif/door.rs:9: mod knob has no file"

fresh
echo 'roof | roof/ | Covers' >>"$module/LAYERS"
finds_only "a layer without a file" "roof/ of the layer roof is not there"
echo 'roof | base.rs | Covers' >>"$module/LAYERS"
expect "a file in two layers" 2 "LAYERS:8: base.rs is in base already" layers check
echo 'roof base.rs' >"$module/LAYERS"
expect "a line that is none" 2 "LAYERS:1: not of the form" layers check
expect "a table that is not there" 2 "No such file" layers check --table "$folder/nothing"

# A program has no layers.
fresh
write "$program/lib.rs" <<-'END'
	mod one;
	mod three;
	mod two;
	pub use one::One;
	fn helper() {}
END
write "$program/one.rs" <<<'use crate::two::Two; use crate::helper; pub struct One;'
write "$program/two.rs" <<<'use crate::three; fn f() { three::f() }'
write "$program/three/mod.rs" <<<'mod four; pub fn f() {}'
write "$program/three/four.rs" <<<'use super::f;'
expect "a program without a circle" 0 "" layers check
echo 'use crate::One;' >>"$program/three/mod.rs"
finds_only "a circle in a program" "tools/program/src/one.rs:1: circle of 3:"
write "$folder/tree/tools/lib/library/src/lib.rs" <<<'mod a; mod b;'
write "$folder/tree/tools/lib/library/src/a.rs" <<<'use crate::b;'
write "$folder/tree/tools/lib/library/src/b.rs" <<<'pub fn f() {}'
finds_only "and none in a library" "tools/program/src/one.rs:1: circle of 3:"
echo 'use crate::a;' >>"$folder/tree/tools/lib/library/src/b.rs"
finds "and one in a library" "tools/lib/library/src/b.rs:2 imports crate::a from tools/lib/library/src/a.rs"
write "$folder/tree/tests/src/main.rs" <<<'mod a; mod b;'
write "$folder/tree/tests/src/a.rs" <<<'use crate::b;'
write "$folder/tree/tests/src/b.rs" <<<'fn f() { crate::a::g() }'
finds "and one in the tests" "tests/src/b.rs:1 imports crate::a::g from tests/src/a.rs"

fresh
expect "the drawing" 0 '>store</text>' layers picture
layers picture >"$folder/before.svg"
sed -i 's/Keeps/Keeps <all>/' "$module/LAYERS"
layers picture >"$folder/after.svg"
expect "is another when the table is" 1 "Keeps &lt;all&gt;" diff "$folder/before.svg" "$folder/after.svg"
expect "is well-formed" 0 "" python3 -c "import sys, xml.dom.minidom as m; m.parse(sys.argv[1])" "$folder/after.svg"
expect "help" 0 "layers picture" "$scripts/layers" --help
tap_end
