// SPDX-License-Identifier: GPL-2.0
//! The agent of a guest. The initramfs starts it as process 1; see `lab::agent`.

fn main() {
    lab::agent::main();
}
