# SPDX-License-Identifier: GPL-2.0
#
# "cargo": makes sure that a working cargo exists, on a user's machine. The including Makefile sets
# before
#
#   without_cargo := an alternative, printed behind ": install Rust 1.85 or newer"
#   try_again     := the target of the repository's Makefile that led here

CARGO ?= cargo

cargo:
	@command -v $(firstword $(CARGO)) >/dev/null || { \
		echo 'error: there is no $(firstword $(CARGO)) here: install Rust 1.85 or newer$(without_cargo)' >&2; \
		exit 2; }
	@$(CARGO) --version >/dev/null 2>&1 || { \
		echo 'error: $(CARGO) does not run; if it is that of rustup: "rustup toolchain install", or RUSTUP_TOOLCHAIN=stable make $(try_again)' >&2; \
		exit 2; }

.PHONY: cargo
